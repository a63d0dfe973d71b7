package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// early is a lane's part in small operations whose data travels with the marks: see transport.EarlyBoard. The log then
// has the result, and no collective follows. An operation takes part only if its input is in host memory and ready, and
// if nothing has to look at the input or to change it on its way: no compression, no prescale, no NaN check, no group.
// Members that leave their data behind make all others do the same.
//
// The board combines operands, whatever they stand for:
//
//	operation   a member's operand                             combined by
//	allreduce   its input                                      the operation's own reduction
//	broadcast   the root's input; on the others zeros          bitwise or
//	allgather   its rows in their place among all rows; else   bitwise or
//	            zeros
//
// A barrier has no data. It ends with its agreement.
type early struct {
	board transport.EarlyBoard // nil if no data travels ahead
	room  int                  // the most that bound can be; 0 if board is nil
	bound int                  // settings.early: no operand has more bytes; guarded by engine.mu

	operand transport.Operand // the last one, until something is agreed on; guarded by engine.mu
	made    []byte            // memory for an operand that is not an input as it is; guarded by engine.mu

	// The driver's.
	results [][]byte  // by place in the batch of the log; nil for a Response without a result
	some    bool      // results has one
	counted [2]uint64 // what figures have of the board's EarlySent
}

// newEarly decides whether data travels ahead. All members decide alike.
func (l *lane) newEarly() early {
	o := &l.engine.opts
	b, ok := l.board.(transport.EarlyBoard)
	if !ok || !l.carriesItself() || o.NaNCheck != operation.NaNUnchecked {
		return early{}
	}
	if room := b.EarlyBytes(math.MaxInt); room > 0 {
		return early{board: b, room: room}
	}
	return early{}
}

// carriesItself reports whether the lane's data path carries all data in host memory. A carrier such as MPI is to carry
// all that it can.
func (l *lane) carriesItself() bool {
	_, own := l.run.(*collective.Lane)
	return own
}

// bytes is the bound in this lane if up to wanted bytes may travel ahead in a lane on few hosts.
func (e *early) bytes(wanted int) int {
	if e.board == nil {
		return 0
	}
	return e.board.EarlyBytes(wanted)
}

// boundEarly makes settings.early the bound. The caller holds engine.mu, or is the only one that knows the lane.
func (l *lane) boundEarly() {
	if e := &l.early; e.board != nil {
		e.bound = min(l.settings.early, e.room)
		e.board.BoundEarly(e.bound)
	}
}

// operandOf returns the operand of an operation that is about to be announced by its card, or nil if its data stays
// behind. It is valid until the next call. The caller holds engine.mu.
func (l *lane) operandOf(en *Entry) *transport.Operand {
	q, e := &en.request, &l.early
	if len(en.op.In) > e.bound || q.Device != negotiate.CPUDevice || q.Group != "" {
		return nil
	}
	e.operand = transport.Operand{DType: tensor.Uint8, Reduce: tensor.BitOr, Scale: 1}
	switch q.Type {
	case operation.Allreduce:
		op, scale := operation.Combine(q.ReduceOp, q.Postscale, len(l.members))
		if q.Wire != tensor.WireAsIs || q.Prescale != 1 || reduce.Check(q.DType, op) != nil ||
			reduce.CheckScale(q.DType, scale) != nil {
			return nil // in the last two cases its start has the error
		}
		e.operand = transport.Operand{DType: q.DType, Reduce: op, Scale: scale, Data: en.op.In}
	case operation.Broadcast:
		e.operand.Data = en.op.In
		if l.members[l.rank] != int(q.Root) {
			e.operand.Data = e.zeros(len(en.op.In))
		}
	case operation.Allgather:
		e.operand.Data = l.rowsInPlace(en)
	default:
		return nil
	}
	if len(e.operand.Data) == 0 {
		return nil
	}
	return &e.operand
}

// rowsInPlace is the output of an Allgather with this member's rows alone, or nil if it is too large. The caller holds
// engine.mu.
func (l *lane) rowsInPlace(en *Entry) []byte {
	resp, err := l.worker.Card(en.card)
	if err != nil || len(resp.FirstDims) != len(l.members) {
		return nil // whoever reads the record of the card has the error
	}
	row := rowBytes(resp.Shape, resp.DType)
	total, place := int64(0), int64(0)
	for m, rows := range resp.FirstDims {
		if m == l.rank {
			place = total
		}
		if total += rows * row; total > int64(l.early.bound) {
			return nil
		}
	}
	all := l.early.zeros(int(total))
	copy(all[place:], en.op.In)
	return all
}

// zeros returns n zero bytes, which are valid until the next call.
func (e *early) zeros(n int) []byte {
	e.made = slices.Grow(e.made[:0], n)[:n]
	clear(e.made)
	return e.made
}

// answered forgets the operand, which would keep the caller's memory alive. The caller holds engine.mu.
func (e *early) answered() { e.operand.Data = nil }

// passAhead has the failpoint of an operation whose data has gone ahead, and that has not been agreed on.
func (l *lane) passAhead() {
	if !failpoint.Enabled || l.early.board == nil {
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

// travels reports whether the data of operations of a kind may travel with their marks.
func travels(k operation.Kind) bool {
	return k == operation.Allreduce || k == operation.Broadcast || k == operation.Allgather
}

// checkResult checks that a record's result fits its Response.
func checkResult(rec *transport.Record, resp *negotiate.Response) error {
	n, err := resp.Shape.NumElements()
	if err != nil || !travels(resp.Type) || n*int64(resp.DType.Size()) != int64(len(rec.Payload)) {
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
	out := p.entry.op.Out
	switch b.Type {
	case operation.Broadcast:
		if l.members[l.rank] == int(p.resp.Root) && &out[0] == &p.entry.op.In[0] {
			out = nil // the program may read its tensor meanwhile
		}
	case operation.Allgather:
		var ok bool
		x.counts = x.counts[:0]
		if out, _, ok = l.gathered(p); !ok {
			return
		}
	}
	l.traceMove(x.parts)
	copy(out, b.Result)
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
