package engine

import (
	"fmt"
	"math"
	"strings"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/reduce"
)

const (
	// nanCheckBytes is how many bytes a check reads before the driver looks after other lanes.
	nanCheckBytes = 1 << 20
	// nanReports is the most tensors that a rank names in its log.
	nanReports = 16
)

// nanCheck looks for NaNs and infinities in what this rank contributes to a batch, before the batch begins. It is a
// collective.Op, so that a long one leaves the driver time for other lanes.
type nanCheck struct {
	lane  *lane
	batch *negotiate.Batch
	infs  bool // infinities count, too
	part  int  // of the lane's current execution
	off   int  // in the part's input
}

// checksNaNs begins the check of b's inputs, and reports whether it goes on, or has aborted.
func (l *lane) checksNaNs(b *negotiate.Batch) bool {
	nan, infs := b.Type.Spreads(b.ReduceOp)
	if !nan {
		return false
	}
	l.nans = nanCheck{lane: l, batch: b, infs: infs}
	done, err := l.nans.Advance()
	if err != nil {
		l.engine.net.Abort(err)
		return true
	}
	if !done {
		l.current.op, l.current.then = &l.nans, nansChecked
		l.current.by, l.current.polled = l.run, false
	}
	return !done
}

// checking reports whether the current operation is a check, which waits for nobody.
func (l *lane) checking() bool { return l.current.op == collective.Op(&l.nans) }

// nansChecked begins the batch after a long check.
func nansChecked(l *lane) {
	b := l.nans.batch
	starts[b.Type](l, b)
}

// Advance checks some of the inputs.
func (c *nanCheck) Advance() (done bool, err error) {
	parts := c.lane.current.parts
	for budget := nanCheckBytes; c.part < len(parts); {
		var rest []byte
		if en := parts[c.part].entry; en != nil {
			rest = en.op.In[c.off:]
		}
		if len(rest) == 0 {
			c.part, c.off = c.part+1, 0
			continue
		}
		if budget == 0 {
			return false, nil
		}
		n := min(len(rest), budget)
		budget -= n
		if reduce.Finite(c.batch.DType, rest[:n]) {
			c.off += n
			continue
		}
		if err := c.found(&parts[c.part]); err != nil {
			return false, err
		}
		c.part, c.off = c.part+1, 0
	}
	return true, nil
}

// found looks closer at a part whose input has an element that is not finite. An error ends the job.
func (c *nanCheck) found(p *part) error {
	e := c.lane.engine
	abort := e.opts.NaNCheck == operation.NaNAbort
	known := e.nansOf[p.resp.Name]
	if known && c.infs {
		e.counters.NaNs.Add(1)
		return nil
	}
	what := reduce.Find(c.batch.DType, p.entry.op.In, c.infs)
	if what.First < 0 {
		return nil // infinities that do not count
	}
	e.counters.NaNs.Add(1)
	switch {
	case abort:
		return fmt.Errorf("%s (GOROVOD_NAN_CHECK=abort)", c.describe(p, what))
	case known || len(e.nansOf) == nanReports:
	default:
		if e.nansOf == nil {
			e.nansOf = make(map[string]bool)
		}
		e.nansOf[strings.Clone(p.resp.Name)] = true
		text := c.describe(p, what)
		if len(e.nansOf) == nanReports {
			text += fmt.Sprintf("; this rank names no more tensors after these %d", nanReports)
		}
		e.opts.Log.Warn(text)
	}
	return nil
}

// describe is the sentence about a part for users.
func (c *nanCheck) describe(p *part, what reduce.NonFinite) string {
	l := c.lane
	kind := "contributes an infinity to"
	if math.IsNaN(what.Value) {
		kind = "contributes a NaN to"
	}
	set := ""
	if l.id != 0 {
		set = fmt.Sprintf(" of process set %d", l.id)
	}
	return fmt.Sprintf("%s %s %s %q%s: at index %d of %d (%v); NaNs: %d, infinities: %d",
		l.engine.opts.Describe(l.engine.opts.Rank), kind, strings.ToLower(p.resp.Type.Describe().Name), p.resp.Name,
		set, what.First, len(p.entry.op.In)/c.batch.DType.Size(), c.batch.DType, what.NaNs, what.Infs)
}
