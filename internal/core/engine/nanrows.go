package engine

import (
	"fmt"
	"math"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// checkRows looks for NaNs and infinities in the rows that the current execution, Pulls, has brought. It aborts the job
// if Options.NaNCheck says so, and reports whether it has.
func (l *lane) checkRows() (aborted bool) {
	e := l.engine
	for i := range l.current.parts {
		p := &l.current.parts[i]
		if p.entry == nil || p.err != nil || reduce.Finite(p.resp.DType, p.entry.op.Out) {
			continue
		}
		abort := e.opts.NaNCheck == operation.NaNAbort
		if !abort && (e.nansOf[p.resp.Name] || len(e.nansOf) == nanReports) {
			continue
		}
		text := l.describeRows(i)
		e.opts.Log.Warn(text)
		if abort {
			e.net.Abort(fmt.Errorf("%s (GOROVOD_NAN_CHECK=abort)", text))
			return true
		}
		if e.nansOf == nil {
			e.nansOf = make(map[string]bool)
		}
		e.nansOf[strings.Clone(p.resp.Name)] = true
	}
	return false
}

// describeRows is the sentence about a part with such rows for users.
func (l *lane) describeRows(part int) string {
	en := l.current.parts[part].entry
	t, rows := l.sparse.tables[part].Options(), view[float32](en.op.Out)
	first, at, kind, n := -1, 0, "", 0
	for i := range en.op.Keys {
		for j, x := range rows[i*t.Dim:][:t.Dim] {
			if x-x == 0 {
				continue
			}
			if n++; first < 0 {
				first, at, kind = i, j, "an infinity"
				if math.IsNaN(float64(x)) {
					kind = "a NaN"
				}
			}
			break
		}
	}
	return fmt.Sprintf("%s pulls a row with %s of table %q: that of key %d, at number %d of %d; rows with NaNs or "+
		"infinities: %d of %d", l.engine.opts.Describe(l.engine.opts.Rank), kind, t.Name, en.op.Keys[first], at, t.Dim,
		n, len(en.op.Keys))
}
