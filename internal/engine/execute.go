package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/failpoint"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
)

// execution is what a lane is doing now.
type execution struct {
	op     collective.Op     // nil: nothing
	parts  []part            // what it completes
	fused  []byte            // the parts' data side by side, if op works on a copy
	memory []collective.Part // the parts' memory, if op works on that
	// then, if not nil, continues after op: it sets the next op or ends the execution.
	then func(l *lane)

	buffer   fusionBuffer
	spare    fusionBuffer // in place of an output that nobody wants, or has no memory
	counts   []int64      // bytes of each member, to send or to gather
	received []int64      // bytes from each member
	segments []int        // of an Adasum, in bytes
}

// part is one tensor of an execution. On a rank that has joined entry is nil
// where it has not submitted the tensor: it takes part with zeros, or with nothing.
type part struct {
	entry *Entry
	resp  *negotiate.Response
	bytes int // of the tensor that is reduced
	// err ends the tensor on this rank alone: it has no memory for the output, but
	// takes part so that the others get theirs.
	err *Error
}

// start begins the execution of b: afterwards an operation is current, or what b
// holds has been completed.
func (l *lane) start(b *negotiate.Batch) {
	failpoint.Here("negotiated")
	x := &l.current
	l.clock = time.Now().UnixNano()
	x.parts, x.fused, x.then = x.parts[:0], nil, nil
	if b.Type == operation.Settle {
		l.settled(b.Responses[0])
		return
	}
	l.engine.mu.Lock()
	joined := l.joining != nil
	for _, resp := range b.Responses {
		en := l.table[resp.Name]
		l.recordStart(en)
		x.parts = append(x.parts, part{entry: en, resp: resp})
	}
	l.engine.mu.Unlock()
	for _, p := range x.parts {
		if resp := p.resp; p.entry == nil && !(joined && slices.Contains(resp.Joined, int32(l.rank))) {
			l.engine.net.Abort(fmt.Errorf("protocol error: %s must execute %q, but has not submitted it",
				l.engine.opts.Describe(l.engine.opts.Rank), resp.Name))
			return
		}
	}
	first := b.Responses[0]
	if first.Err != "" {
		for _, p := range x.parts {
			err := &Error{PreconditionError, first.Err}
			if p.entry != nil && p.entry.refusal != nil {
				err = p.entry.refusal
			}
			l.complete(p.entry, err)
		}
		return
	}
	l.traceStart(x.parts)
	if start := starts[first.Type]; start != nil {
		start(l, b)
		return
	}
	l.engine.net.Abort(fmt.Errorf("protocol error: the log has operation %d, which this rank does not know",
		first.Type))
}

// result completes an operation whose outcome is a number.
func (l *lane) result(n int32) {
	p := &l.current.parts[0]
	if p.entry != nil {
		p.entry.root = n
	}
	l.complete(p.entry, nil)
}

// startReduction begins an Allreduce or Adasum of one tensor or of several.
func (l *lane) startReduction(b *negotiate.Batch) {
	x := &l.current
	op, scale := operation.Combine(b.ReduceOp, b.Postscale, len(l.members))
	total := 0
	for i := range x.parts {
		p := &x.parts[i]
		n, _ := p.resp.Shape.NumElements() // checked when the Response was decoded
		p.bytes = int(n) * b.DType.Size()
		total += p.bytes
	}
	if op != tensor.Adasum && l.run.TakesParts() {
		l.reduceParts(b, op, scale)
		return
	}
	in, out, ok := l.gather(b, total)
	if !ok {
		return
	}
	if op != tensor.Adasum {
		l.traceMove(x.parts)
		x.op = l.run.AllreduceAs(b.Wire, b.DType, op, in, out, scale)
		return
	}
	l.traceMove(x.parts)
	x.segments = x.segments[:0]
	for _, p := range x.parts {
		x.segments = append(x.segments, p.bytes)
	}
	if len(in) > 0 && &in[0] != &out[0] {
		copy(out, in)
	}
	x.op = l.run.Adasum(b.DType, out, x.segments, scale)
}

// reduceParts begins an Allreduce of the parts where they are.
func (l *lane) reduceParts(b *negotiate.Batch, op tensor.ReduceOp, scale float64) {
	x := &l.current
	x.memory = x.memory[:0]
	for _, p := range x.parts {
		part := collective.Part{Bytes: p.bytes}
		if p.entry != nil {
			part.In, part.Out = p.entry.op.In, p.entry.op.Out
		}
		x.memory = append(x.memory, part)
	}
	l.traceMove(x.parts)
	x.op = l.run.AllreduceParts(b.DType, op, x.memory, b.Prescale, scale)
}

// gather makes the parts' data, scaled by the prescale, one piece of memory: that
// of a single tensor, else the fusion buffer. Not ok after an abort.
func (l *lane) gather(b *negotiate.Batch, total int) (in, out []byte, ok bool) {
	x := &l.current
	if en := x.parts[0].entry; len(x.parts) == 1 && en != nil {
		if b.Prescale == 1 {
			return en.op.In, en.op.Out, true
		}
		reduce.Scale(b.DType, en.op.Out, en.op.In, b.Prescale)
		return en.op.Out, en.op.Out, true
	}
	buf := l.grow(total)
	if buf == nil {
		return nil, nil, false
	}
	l.pack(buf, b)
	x.fused = buf
	return buf, buf, true
}

// pack copies the parts side by side into buf, scaled by the prescale.
func (l *lane) pack(buf []byte, b *negotiate.Batch) {
	l.trace(l.current.parts, activityPack)
	off := 0
	for _, p := range l.current.parts {
		if off > 0 {
			failpoint.Here("pack")
		}
		to := buf[off : off+p.bytes]
		off += p.bytes
		switch {
		case p.entry == nil:
			clear(to)
		case b.Prescale != 1:
			reduce.Scale(b.DType, to, p.entry.op.In, b.Prescale)
		default:
			copy(to, p.entry.op.In)
		}
	}
}

// grow returns n bytes of the fusion buffer; nil after an abort for want of memory.
func (l *lane) grow(n int) []byte {
	return l.growIn(&l.current.buffer, n)
}

func (l *lane) growIn(f *fusionBuffer, n int) []byte {
	buf, err := f.grow(n)
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("buffer of %d bytes on %s: %w", n, l.engine.opts.Describe(l.engine.opts.Rank),
			err))
		return nil
	}
	return buf
}

// apart returns in, or a copy of it if out has memory in common with it. Nil after an
// abort for want of memory.
func (l *lane) apart(in, out []byte) []byte {
	if in == nil {
		return []byte{}
	}
	if !overlap(in, out) {
		return in
	}
	buf := l.grow(len(in))
	copy(buf, in)
	return buf
}

// affordable is the size in bytes of an output whose shape other ranks have a say in.
// Where the memory of this host cannot hold it, it aborts, and returns false: nothing is
// allocated for what a rank merely says.
func (l *lane) affordable(p *part, shape tensor.Shape) (bytes int, ok bool) {
	n, err := shape.NumElements()
	size := int64(p.resp.DType.Size())
	if most := hostMemory(); err == nil && n > most/size {
		err = fmt.Errorf("output of shape %v of %v: the host has %d bytes of memory", shape, p.resp.DType, most)
	}
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("%s %q on %s: %w", p.resp.Type.Describe().Name, p.resp.Name,
			l.engine.opts.Describe(l.engine.opts.Rank), err))
		return 0, false
	}
	return int(n * size), true
}

// output makes the output of a part: the caller's way, or scratch memory where
// this rank has joined or the caller has none. Nil after an abort.
func (l *lane) output(p *part, shape tensor.Shape, n int) []byte {
	if p.entry == nil {
		return l.growIn(&l.current.spare, n)
	}
	en := p.entry
	en.outShape = shape
	if en.op.Out != nil || en.op.Alloc == nil {
		return en.op.Out
	}
	out, err := en.op.Alloc(shape, n)
	if err != nil {
		p.err = errorf(UnknownError, "%s %q on %s: output of %d bytes: %v", en.request.Type.Describe().Name,
			p.resp.Name, l.engine.opts.Describe(l.engine.opts.Rank), n, err)
		return l.growIn(&l.current.spare, n)
	}
	en.op.Out = out
	return out
}

func (l *lane) startAllgather(*negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	if len(p.resp.FirstDims) != len(l.members) {
		l.engine.net.Abort(fmt.Errorf("protocol error: allgather %q of %d ranks has rows of %d", p.resp.Name,
			len(l.members), len(p.resp.FirstDims)))
		return
	}
	total, ok := l.affordable(p, p.resp.Shape)
	if !ok {
		return
	}
	row := rowBytes(p.resp.Shape, p.resp.DType)
	x.counts = x.counts[:0]
	for _, d := range p.resp.FirstDims {
		x.counts = append(x.counts, d*row)
	}
	out := l.output(p, p.resp.Shape, total)
	if l.engine.net.Err() != nil {
		return
	}
	var in []byte
	if p.entry != nil {
		in = p.entry.op.In
		place := int64(0)
		for _, n := range x.counts[:l.rank] {
			place += n
		}
		if inPlace := len(in) > 0 && len(out) == total && &in[0] == &out[place]; !inPlace {
			if in = l.apart(in, out); in == nil {
				return
			}
		}
	}
	l.traceMove(x.parts)
	x.op = l.run.Allgather(in, out, x.counts)
}

func (l *lane) startBroadcast(*negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	root := l.member(int(p.resp.Root))
	var buf []byte
	if p.entry == nil {
		n, _ := p.resp.Shape.NumElements()
		if buf = l.grow(int(n) * p.resp.DType.Size()); buf == nil {
			return
		}
	} else {
		buf = p.entry.op.Out
		if l.rank == root && len(buf) > 0 && &p.entry.op.In[0] != &buf[0] {
			copy(buf, p.entry.op.In)
		}
	}
	l.traceMove(x.parts)
	x.op = l.run.Broadcast(root, buf)
}

// rowsForJoined is sent in place of counts by a member that has rows for one that
// has joined.
const rowsForJoined = -1

// startAlltoall lets the members tell one another how many rows they send;
// finishAlltoall then moves the rows.
func (l *lane) startAlltoall(*negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	x.counts = grown(x.counts, len(l.members))
	x.received = grown(x.received, len(l.members))
	refuse := false
	for m := range x.counts {
		x.counts[m] = 0
		if p.entry != nil {
			x.counts[m] = int64(p.entry.sendRows[m])
			refuse = refuse || x.counts[m] > 0 && slices.Contains(p.resp.Joined, int32(m))
		}
	}
	for m := range x.counts {
		if refuse { // tells every member, so that all fail alike
			x.counts[m] = rowsForJoined
		}
	}
	x.then = exchangeRows
	l.traceMove(x.parts)
	x.op = l.run.AlltoallCounts(x.counts, x.received)
}

// exchangeRows continues an Alltoall after its counts have arrived.
func exchangeRows(l *lane) {
	x := &l.current
	p := &x.parts[0]
	row := rowBytes(p.resp.Shape, p.resp.DType)
	total := int64(0)
	for m := range x.received {
		if x.received[m] == rowsForJoined {
			l.complete(p.entry, errorf(PreconditionError, "%s %q: rank %d sends rows to a rank that has joined.",
				p.resp.Type.Describe().Name, p.resp.Name, l.members[m]))
			return
		}
		if x.received[m] < 0 || x.received[m] > math.MaxInt32 { // splits have 32 bits
			l.engine.net.Abort(fmt.Errorf("protocol error: alltoall %q: %s sends %d rows", p.resp.Name,
				l.engine.opts.Describe(l.members[m]), x.received[m]))
			return
		}
		total += x.received[m]
	}
	shape := append(tensor.Shape{total}, p.resp.Shape[1:]...)
	bytes, ok := l.affordable(p, shape)
	if !ok {
		return
	}
	if p.entry != nil {
		p.entry.received = make([]int32, len(x.received))
		for m, n := range x.received {
			p.entry.received[m] = int32(n)
		}
	}
	out := l.output(p, shape, bytes)
	if l.engine.net.Err() != nil {
		return
	}
	sent := int64(0)
	for m := range x.counts {
		x.counts[m] *= row
		x.received[m] *= row
		sent += x.counts[m]
	}
	var in []byte
	if p.entry != nil {
		in = p.entry.op.In[:sent] // rows beyond the splits stay here
		if in = l.apart(in, out); in == nil {
			return
		}
	}
	x.op = l.run.Alltoall(in, x.counts, out, x.received)
}

func (l *lane) startReducescatter(*negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	resp := p.resp
	row := rowBytes(resp.Shape, resp.DType)
	x.counts = grown(x.counts, len(l.members))
	for m := range x.counts {
		x.counts[m] = operation.Share(resp.Shape[0], m, len(l.members)) * row
	}
	n := int(resp.Shape[0] * row)
	var in, out []byte
	switch {
	case p.entry == nil: // zeros in, and what comes out is dropped
		in, out = l.grow(n), l.output(p, nil, int(x.counts[l.rank]))
		if in == nil || out == nil {
			return
		}
		clear(in)
	default:
		in = p.entry.op.In
		shape := append(tensor.Shape{operation.Share(resp.Shape[0], l.rank, len(l.members))}, resp.Shape[1:]...)
		out = l.output(p, shape, int(x.counts[l.rank]))
		if l.engine.net.Err() != nil {
			return
		}
		if resp.Prescale != 1 {
			buf := l.grow(n)
			if buf == nil {
				return
			}
			reduce.Scale(resp.DType, buf, in, resp.Prescale)
			in = buf
		} else if in = l.apart(in, out); in == nil {
			return
		}
	}
	l.traceMove(x.parts)
	x.op = l.run.Reducescatter(resp.DType, resp.ReduceOp, in, out, x.counts, resp.Postscale)
}

// finishCurrent completes what the operation that is done was for, or goes on
// with its next step.
func (l *lane) finishCurrent() {
	x := &l.current
	x.op = nil
	l.clock = time.Now().UnixNano()
	if then := x.then; then != nil {
		x.then = nil
		then(l)
		return
	}
	if x.fused != nil {
		l.trace(x.parts, activityUnpack)
	}
	if t := l.engine.tuner; t != nil && l == l.engine.world && x.parts[0].resp.Type == operation.Allreduce {
		t.executed(x.parts)
	}
	off := 0
	for _, p := range x.parts {
		if x.fused != nil && p.entry != nil {
			copy(p.entry.op.Out, x.fused[off:off+p.bytes])
		}
		off += p.bytes
	}
	l.completeParts()
	x.fused = nil
	clear(x.memory) // a caller's tensors are not kept alive
	x.memory = x.memory[:0]
}

// grown returns a slice of n elements in s's memory if that suffices.
func grown(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n)
	}
	return s[:n]
}
