package engine

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

const (
	// nanCheckBytes is how many bytes a check reads before the driver looks after other lanes.
	nanCheckBytes = 1 << 20
	// nanReports is the most tensors that a rank names in its log.
	nanReports = 16
)

// nanCheck looks for NaNs and infinities in what this rank contributes to a batch, before others see it. Where the
// carrier lets it look while it moves the data (collective.Inspector), that costs little. Otherwise it reads all inputs
// before the batch begins: then it is a collective.Op, so that a long one leaves the driver time for other lanes.
type nanCheck struct {
	lane  *lane
	batch *negotiate.Batch
	infs  bool     // infinities count, too
	part  int      // of the lane's current execution
	off   int      // in the part's input
	found []uint64 // a bit for each part in which it has found some; kept
}

// checksNaNs begins the check of b's inputs, and reports whether it goes on before b begins, or has aborted.
func (l *lane) checksNaNs(b *negotiate.Batch) bool {
	nan, infs := b.Type.Spreads(b.ReduceOp)
	if b.Type == operation.Allgather {
		addsUp := func(p part) bool { return p.entry != nil && p.entry.op.AddsUp }
		nan, infs = slices.ContainsFunc(l.current.parts, addsUp), true
	}
	if !nan {
		return false
	}
	c := &l.nans
	*c = nanCheck{lane: l, batch: b, infs: infs, found: c.found}
	if words := (len(l.current.parts) + 63) / 64; len(c.found) < words {
		c.found = make([]uint64, words)
	}
	clear(c.found)
	if l.inspects(b) {
		l.current.inspect = c
		return false
	}
	done, err := c.Advance()
	if err != nil {
		l.engine.net.Abort(err)
		return true
	}
	if !done {
		l.current.op, l.current.then = c, nansChecked
		l.current.by, l.current.polled = l.run, false
	}
	return !done
}

// inspects reports whether the lane's carrier lets the check look while it moves b's data.
func (l *lane) inspects(b *negotiate.Batch) bool {
	switch b.Type {
	case operation.Allreduce, operation.Reducescatter:
		return l.can.Inspects
	case operation.Reduce:
		return l.can.Inspects && b.Prescale == 1
	}
	return false
}

// checking reports whether the current operation is a check, or work on tables. These wait for nobody.
func (l *lane) checking() bool {
	return l.current.op == collective.Op(&l.nans) || l.sparse != nil && l.current.op == collective.Op(l.sparse)
}

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
		if en := parts[c.part].entry; en != nil && (en.op.AddsUp || c.batch.Type != operation.Allgather) {
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
		if c.Sound(rest[:n]) {
			c.off += n
			continue
		}
		off := c.off
		if err := c.Unsound(c.part, func(yield func(int, []byte) bool) { yield(off, rest) }); err != nil {
			return false, err
		}
		c.part, c.off = c.part+1, 0
	}
	return true, nil
}

// Sound reports whether p, elements of the batch's type, has nothing that counts.
func (c *nanCheck) Sound(p []byte) bool {
	return reduce.Finite(c.batch.DType, p) || !c.infs && reduce.Find(c.batch.DType, p, false).First < 0
}

// Unsound looks closer at a part: see collective.Inspector. An error ends the job.
func (c *nanCheck) Unsound(number int, rest iter.Seq2[int, []byte]) error {
	word, bit := &c.found[number/64], uint64(1)<<(number%64)
	if *word&bit != 0 {
		return nil // it has been told
	}
	*word |= bit
	e, p := c.lane.engine, &c.lane.current.parts[number]
	e.counters.NaNs.Add(1)
	abort := e.opts.NaNCheck == operation.NaNAbort
	if !abort && (e.nansOf[p.resp.Name] || len(e.nansOf) == nanReports) {
		return nil
	}
	what := reduce.NonFinite{First: -1}
	for off, in := range rest {
		what.Join(reduce.Find(c.batch.DType, in, c.infs), int64(off/c.batch.DType.Size()))
	}
	if abort {
		// Its program may catch the error: an elastic job does.
		e.opts.Log.Warn(c.describe(p, what))
		return fmt.Errorf("%s (GOROVOD_NAN_CHECK=abort)", c.describe(p, what))
	}
	if e.nansOf == nil {
		e.nansOf = make(map[string]bool)
	}
	e.nansOf[strings.Clone(p.resp.Name)] = true
	text := c.describe(p, what)
	if len(e.nansOf) == nanReports {
		text += fmt.Sprintf("; this rank names no more tensors after these %d", nanReports)
	}
	e.opts.Log.Warn(text)
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
	of := ""
	if p.resp.Type == operation.Push {
		of = fmt.Sprintf(", of key %d", p.entry.op.Keys[what.First/p.entry.request.Shape[1]])
	}
	return fmt.Sprintf("%s %s %s %q%s: at index %d of %d (%v)%s; NaNs: %d, infinities: %d",
		l.engine.opts.Describe(l.engine.opts.Rank), kind, strings.ToLower(p.resp.Type.Describe().Name), p.resp.Name,
		set, what.First, len(p.entry.op.In)/c.batch.DType.Size(), c.batch.DType, of, what.NaNs, what.Infs)
}
