package carrier

import (
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// write makes a program of an operation: wait for the tensors, let NCCL do the operation as one group, and record the
// end.
func (l *Lane) write(p *nccl.Program, a *collective.Arguments) error {
	for _, owner := range a.Owners {
		if owner != nil {
			p.Wait(owner.(*Tensor).event)
		}
	}
	w := writer{Program: p, lane: l, args: a, dtype: nccl.Uint8, size: 1}
	var err error
	switch a.Kind {
	case collective.Allreduce, collective.Reduce, collective.Reducescatter:
		err = w.reduction()
	case collective.Broadcast:
		err = w.broadcast()
	case collective.Allgather:
		err = w.allgather()
	case collective.Alltoall:
		err = w.alltoall()
	default:
		err = fmt.Errorf("operation %d is unknown", a.Kind)
	}
	if err != nil {
		return err
	}
	p.Record(l.done)
	if !l.devices.options.Async {
		return nil
	}
	for _, owner := range a.Owners {
		if owner != nil {
			p.Record(owner.(*Tensor).event)
		}
	}
	return nil
}

// writer writes a program. dtype is the elements' type for NCCL, and size is an element's size in bytes.
type writer struct {
	*nccl.Program
	lane  *Lane
	args  *collective.Arguments
	dtype nccl.DType
	op    nccl.ReduceOp
	size  int
}

// count returns the number of elements in the given number of bytes.
func (w *writer) count(bytes int) int { return bytes / w.size }

// out returns the address for an output. That is scratch memory if nobody wants the output.
func (w *writer) out(part *collective.Part, bytes int) (uintptr, error) {
	if part.Out != nil || bytes == 0 {
		return addressOf(part.Out), nil
	}
	return w.lane.scratch.of(bytes, w.lane, false)
}

func (w *writer) reduction() error {
	a := w.args
	w.dtype, w.size = elements[a.DType], a.DType.Size()
	op, err := w.lane.reduceOp(a)
	if err != nil {
		return err
	}
	w.op = op
	switch a.Kind {
	case collective.Reduce:
		return w.reduce()
	case collective.Reducescatter:
		return w.reducescatter()
	}
	return w.allreduce()
}

// allreduce writes one group of all parts, because NCCL aggregates the operations of a group.
func (w *writer) allreduce() error {
	if w.args.Absent {
		return w.inPieces(w.AllReduce)
	}
	if len(w.args.Parts) > 1 {
		w.GroupStart()
	}
	for i := range w.args.Parts {
		if part := &w.args.Parts[i]; part.Bytes > 0 {
			w.AllReduce(addressOf(part.Out), addressOf(part.In), w.count(part.Bytes), w.dtype, w.op)
		}
	}
	if len(w.args.Parts) > 1 {
		w.GroupEnd()
	}
	return nil
}

// absentPiece is the number of bytes that a joined member reads or writes at a time.
const absentPiece = 4 << 20

// inPieces writes a reduction in which a joined member takes part with zeros. All members cut it into the same pieces,
// outside of groups, so that the joined member can use one piece of memory for all of them.
func (w *writer) inPieces(reduce func(to, from uintptr, count int, t nccl.DType, op nccl.ReduceOp)) error {
	zeros, scratch, err := w.forAbsent()
	if err != nil {
		return err
	}
	for i := range w.args.Parts {
		part := &w.args.Parts[i]
		in, out := addressOf(part.In), addressOf(part.Out)
		for left := part.Bytes; left > 0; left -= absentPiece {
			n := min(left, absentPiece)
			from, to := in, out
			if part.In == nil {
				from, to = zeros, scratch
				if zeros == scratch {
					w.Zero(zeros, n)
				}
			}
			reduce(to, from, w.count(n), w.dtype, w.op)
			in += uintptr(n)
			if out != 0 { // else the result is another member's
				out += uintptr(n)
			}
		}
	}
	return nil
}

// forAbsent returns memory for the pieces of parts that this member does not have: zeros as the input, and scratch
// memory for the result. If the device lacks memory for both, the two are the same.
func (w *writer) forAbsent() (zeros, scratch uintptr, err error) {
	l, most := w.lane, 0
	for i := range w.args.Parts {
		if part := &w.args.Parts[i]; part.In == nil {
			most = max(most, min(part.Bytes, absentPiece))
		}
	}
	if most == 0 {
		return 0, 0, nil
	}
	if !l.short {
		if zeros, err = l.zeros.of(most, l, true); err == nil {
			scratch, err = l.scratch.of(most, l, false)
		}
		if !errors.Is(err, cuda.ErrOutOfMemory) {
			return zeros, scratch, err
		}
		l.short = true
		if l.zeros.size > 0 { // and scratch has none, because it could not grow
			l.scratch, l.zeros = l.zeros, buffer{}
		}
		l.devices.options.Log.Warn(fmt.Sprintf("device %d is out of memory: %s, which has joined, takes part in "+
			"reductions with one buffer of %d bytes instead of two", l.place.device,
			l.devices.options.Describe(l.devices.options.Rank), most))
	}
	if scratch, err = l.scratch.of(most, l, false); err != nil {
		return 0, 0, fmt.Errorf("%w; free memory of the device before the join", err)
	}
	return scratch, scratch, nil
}

// aligned rounds bytes up to the alignment of CUDA's memory.
func aligned(bytes int) int { return (bytes + 255) / 256 * 256 }

func (w *writer) reduce() error {
	reduce := func(to, from uintptr, count int, t nccl.DType, op nccl.ReduceOp) {
		w.Reduce(to, from, count, t, op, w.args.Root)
	}
	if w.args.Absent {
		return w.inPieces(reduce)
	}
	if part := &w.args.Parts[0]; part.Bytes > 0 {
		reduce(addressOf(part.Out), addressOf(part.In), w.count(part.Bytes), w.dtype, w.op)
	}
	return nil
}

// reducescatter writes, for each part, NCCL's if all members get the same number of bytes, else a reduction to each
// member.
func (w *writer) reducescatter() error {
	return w.dealt(func(part *collective.Part, counts []int64, out uintptr) {
		in := addressOf(part.In) // each member has one: the engine does not let joined members come here
		if equal(counts) {
			if counts[0] > 0 {
				w.ReduceScatter(out, in, w.count(int(counts[0])), w.dtype, w.op)
			}
			return
		}
		for m, n := range counts {
			if n > 0 {
				to := out
				if m != w.lane.rank {
					to = 0
				}
				w.Reduce(to, in, w.count(int(n)), w.dtype, w.op, m)
				in += uintptr(n)
			}
		}
	}, func(counts []int64) int { return int(counts[w.lane.rank]) })
}

// dealt writes the steps for each part of which each member has a share, as one group if they can be several. The
// arguments of steps are a part, the bytes of the members' shares, and the address for this member's output, which has
// as many bytes as size says. An address for an output that nobody wants may be the same for several parts.
func (w *writer) dealt(steps func(part *collective.Part, counts []int64, out uintptr),
	size func(counts []int64) int) error {
	members := len(w.lane.members)
	grouped, dropped := len(w.args.Parts) > 1, 0
	for i := range w.args.Parts {
		counts := w.args.Counts[i*members:][:members]
		grouped = grouped || !equal(counts)
		if w.args.Parts[i].Out == nil {
			dropped = max(dropped, size(counts))
		}
	}
	if dropped > 0 {
		if _, err := w.lane.scratch.of(dropped, w.lane, false); err != nil { // so that it does not move below
			return err
		}
	}
	if grouped {
		w.GroupStart()
	}
	for i := range w.args.Parts {
		part, counts := &w.args.Parts[i], w.args.Counts[i*members:][:members]
		out, err := w.out(part, size(counts))
		if err != nil {
			return err
		}
		steps(part, counts, out)
	}
	if grouped {
		w.GroupEnd()
	}
	return nil
}

func (w *writer) broadcast() error {
	part := &w.args.Parts[0]
	out, err := w.out(part, part.Bytes)
	if err != nil || part.Bytes == 0 {
		return err
	}
	in := out
	if w.lane.rank == w.args.Root {
		in = addressOf(part.In)
	}
	w.Broadcast(out, in, part.Bytes, w.dtype, w.args.Root)
	return nil
}

// allgather writes, for each part, NCCL's if all members have the same number of bytes, else a broadcast from each
// member.
func (w *writer) allgather() error {
	return w.dealt(func(part *collective.Part, counts []int64, out uintptr) {
		if equal(counts) {
			if counts[0] > 0 {
				w.AllGather(out, addressOf(part.In), int(counts[0]), w.dtype)
			}
			return
		}
		for m, n := range counts {
			if n > 0 {
				in := out
				if m == w.lane.rank {
					in = addressOf(part.In)
				}
				w.Broadcast(out, in, int(n), w.dtype, m)
				out += uintptr(n)
			}
		}
	}, func(counts []int64) (total int) {
		for _, n := range counts {
			total += int(n)
		}
		return total
	})
}

// alltoall writes a copy of this member's own share, and a group of messages for the others.
func (w *writer) alltoall() error {
	part, counts, received := &w.args.Parts[0], w.args.Counts, w.args.Received
	total := 0
	for _, n := range received {
		total += int(n)
	}
	out, err := w.out(part, total)
	if err != nil {
		return err
	}
	in := addressOf(part.In)
	from, to := in, out
	for m := range counts {
		if m == w.lane.rank && counts[m] > 0 {
			w.Copy(to, from, int(counts[m]))
		}
		from += uintptr(counts[m])
		to += uintptr(received[m])
	}
	w.GroupStart()
	for m := range counts {
		if m != w.lane.rank {
			if counts[m] > 0 {
				w.Send(in, int(counts[m]), w.dtype, m)
			}
			if received[m] > 0 {
				w.Recv(out, int(received[m]), w.dtype, m)
			}
		}
		in += uintptr(counts[m])
		out += uintptr(received[m])
	}
	w.GroupEnd()
	return nil
}

func equal(counts []int64) bool {
	for _, n := range counts {
		if n != counts[0] {
			return false
		}
	}
	return true
}

// mostScales is how many scaled sums a communicator keeps.
const mostScales = 64

// reduceOp returns NCCL's operation for that of a, with a's factors.
func (l *Lane) reduceOp(a *collective.Arguments) (nccl.ReduceOp, error) {
	switch factor := a.Prescale * a.Postscale; {
	case factor == 1:
		return reduceOps[a.Reduce], nil
	case a.Reduce != tensor.Sum:
		return 0, errors.New("only sums are scaled")
	case !a.DType.IsFloat8() && averages(factor, len(l.members)):
		return nccl.Average, nil
	default:
		return l.scaledSum(scaling{a.DType, factor})
	}
}

// scaledSum returns NCCL's sum with a factor. The communicator keeps up to mostScales of them.
func (l *Lane) scaledSum(s scaling) (nccl.ReduceOp, error) {
	if op, ok := l.scales[s]; ok {
		return op, nil
	}
	if l.scales == nil {
		l.scales = make(map[scaling]nccl.ReduceOp)
	}
	for old, op := range l.scales {
		if len(l.scales) < mostScales {
			break
		}
		if err := l.comm.FreeScaledSum(op); err != nil {
			return 0, err
		}
		delete(l.scales, old)
	}
	op, err := l.comm.NewScaledSum(elements[s.dtype], factorOf(s.dtype, s.factor))
	if err == nil {
		l.scales[s] = op
	}
	return op, err
}
