package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// early is a lane's part in small allreduces whose data travels with the marks: see transport.EarlyBoard. The log then
// has the result, and no collective follows. An operation takes part only if its input is in host memory and ready, and
// if nothing has to look at the input or to change it on its way: no compression, no prescale, no NaN check, no group.
// Members that leave their data behind make all others do the same.
type early struct {
	board transport.EarlyBoard // nil if no data travels ahead
	most  int                  // bytes of an operand; 0 if board is nil

	operand transport.Operand // the last one, until something is agreed on; guarded by engine.mu

	// The driver's.
	results [][]byte  // by place in the batch of the log; nil for a Response without a result
	some    bool      // results has one
	counted [2]uint64 // what figures have of the board's EarlySent
}

// newEarly decides whether data travels ahead. All members decide alike.
func (l *lane) newEarly() early {
	o := &l.engine.opts
	b, ok := l.board.(transport.EarlyBoard)
	if !ok || b.EarlyBytes() == 0 || o.NaNCheck != operation.NaNUnchecked {
		return early{}
	}
	if _, own := l.run.(*collective.Lane); !own {
		return early{} // a carrier such as MPI is to carry all data
	}
	return early{board: b, most: b.EarlyBytes()}
}

// operandOf returns the operand of an operation that is about to be announced by its card, or nil if its data stays
// behind. It is valid until the next call. The caller holds engine.mu.
func (l *lane) operandOf(en *Entry) *transport.Operand {
	q, n := &en.request, len(en.op.In)
	if n == 0 || n > l.early.most || q.Type != operation.Allreduce || q.Device != negotiate.CPUDevice ||
		q.Wire != tensor.WireAsIs || q.Prescale != 1 || q.Group != "" {
		return nil
	}
	op, scale := operation.Combine(q.ReduceOp, q.Postscale, len(l.members))
	if reduce.Check(q.DType, op) != nil || reduce.CheckScale(q.DType, scale) != nil {
		return nil // its start has the error
	}
	l.early.operand = transport.Operand{DType: q.DType, Reduce: op, Scale: scale, Data: en.op.In}
	return &l.early.operand
}

// answered forgets the operand, which would keep the caller's memory alive. The caller holds engine.mu.
func (e *early) answered() { e.operand.Data = nil }

// passAhead has the failpoint of an operation whose data has gone ahead, and that has not been agreed on.
func (l *lane) passAhead() {
	if !failpoint.Enabled || l.early.most == 0 {
		return
	}
	l.engine.mu.Lock()
	under := l.early.operand.Data != nil
	l.engine.mu.Unlock()
	if under {
		failpoint.Here("ahead")
	}
}

// readResult notes the result of the Response that is read next, nil for none.
func (e *early) readResult(result []byte) {
	e.results = append(e.results, result)
	e.some = e.some || result != nil
}

// checkResult checks that a record's result fits its Response.
func checkResult(rec *transport.Record, resp *negotiate.Response) error {
	n, err := resp.Shape.NumElements()
	if err != nil || resp.Type != operation.Allreduce || n*int64(resp.DType.Size()) != int64(len(rec.Payload)) {
		return fmt.Errorf("%v %q of %v in %v has a result of %d bytes", resp.Type, resp.Name, resp.DType, resp.Shape,
			len(rec.Payload))
	}
	return nil
}

// startResult completes the one tensor of a batch that has come with its result.
func (l *lane) startResult(b *negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	p.bytes = len(b.Result)
	l.traceMove(x.parts)
	copy(p.entry.op.Out, b.Result)
	l.engine.counters.Ahead.Add(1)
	l.finishCurrent()
}

// countEarly notes what the board has sent since the last call. The caller holds engine.mu.
func (l *lane) countEarly(class feed.Class) {
	memory, connections := l.early.board.EarlySent()
	l.addTraffic(feed.ByMemory, class, memory-l.early.counted[0])
	l.addTraffic(feed.ByTCP, class, connections-l.early.counted[1])
	l.early.counted = [2]uint64{memory, connections}
}
