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
)

// execution is the batch that a lane executes: its tensors, and the one operation that moves them now. A lane has one
// execution, and reuses its memory for each batch.
type execution struct {
	// Of the batch, from start until its parts have ended:
	parts    []part   // its tensors, which it completes
	direct   bool     // the parts are on a device, whose carrier moves them
	copied   []copied // the parts of a device that are in host memory meanwhile
	began    moment   // when, as lane.clock has it
	borrowed []byte   // the residuals of several parts, side by side in owed; nil if there are none

	// Of the operation, from carry or begin until finishCurrent:
	op     collective.Op        // nil: nothing
	by     collective.Carrier   // op's
	polled bool                 // nothing rings for op
	args   collective.Arguments // op's
	// inspect, if not nil, looks at this rank's input during the batch's operation.
	inspect collective.Inspector
	memory  []collective.Part  // the parts' memory, of a reduction or on a device
	owners  []collective.Owner // of memory, on a device
	// then, if not nil, continues after op: it sets the next op or ends the execution.
	then func(l *lane)

	// Memory for the batch and all its operations:
	buffer   collective.Buffer // for copies of inputs
	owed     collective.Buffer // for copies of residuals
	spare    collective.Buffer // in place of an output that nobody wants, or that has no memory
	counts   []int64           // bytes of each member, to send or to gather
	received []int64           // bytes from each member
}

// reset makes x ready for the next batch, which begins now.
func (x *execution) reset(now moment) {
	x.parts, x.borrowed, x.then, x.direct, x.began = x.parts[:0], nil, nil, false, now
	x.inspect = nil
}

// drop forgets the tensors of callers, which x would keep alive.
func (x *execution) drop() {
	x.args = collective.Arguments{}
	clear(x.memory)
	x.memory = x.memory[:0]
	clear(x.owners)
	x.owners = x.owners[:0]
}

// part is one tensor of an execution. entry is nil if this rank has joined and has not submitted the tensor: then it
// takes part with zeros, or with nothing.
type part struct {
	entry *Entry
	resp  *negotiate.Response
	bytes int // of the tensor that is reduced
	// err ends the tensor on this rank alone, because there is no memory for its output. The rank still takes part, so
	// that the others get theirs.
	err *Error
}

// start begins the execution of b. Afterwards an operation is current, or b's tensors have been completed.
func (l *lane) start(b *negotiate.Batch) {
	failpoint.Here("negotiated")
	x := &l.current
	if !l.timely {
		l.clock = thisMoment()
	}
	l.timely = false
	x.reset(l.clock)
	if b.Type == operation.Settle {
		l.settled(b.Responses[0])
		return
	}
	l.engine.mu.Lock()
	joined := l.joining != nil
	for i, resp := range b.Responses {
		en := l.answered[b.Places[i]]
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
	if b.Result != nil {
		l.startResult(b)
		return
	}
	if first.Device != negotiate.CPUDevice && l.startOnDevice(b) {
		return
	}
	l.startKind(b)
}

// startKind begins b by the start of its kind, in host memory. Kinds that startDirect does not know, such as Alltoall,
// begin here on devices, too.
func (l *lane) startKind(b *negotiate.Batch) {
	first := b.Responses[0]
	if l.engine.opts.NaNCheck != operation.NaNUnchecked && !l.current.direct && l.checksNaNs(b) {
		return
	}
	if start := starts[first.Type]; start != nil {
		start(l, b)
		return
	}
	l.engine.net.Abort(fmt.Errorf("protocol error: the log has operation %d, which this rank does not know",
		first.Type))
}

// carry begins the operation that a describes.
func (l *lane) carry(a collective.Arguments) {
	x := &l.current
	a.Inspect = x.inspect
	x.args, x.by, x.polled = a, l.run, l.can.Polled
	x.op = l.run.Start(&x.args)
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
	kind := collective.Allreduce
	if op == tensor.Adasum {
		kind = collective.Adasum
	}
	x.memory = x.memory[:0]
	total := 0
	for i := range x.parts {
		p := &x.parts[i]
		n, _ := p.resp.Shape.NumElements() // checked when the Response was decoded
		p.bytes = int(n) * b.DType.Size()
		total += p.bytes
		part := collective.Part{Bytes: p.bytes}
		if p.entry != nil {
			part.In, part.Out = p.entry.op.In, p.entry.op.Out
		}
		x.memory = append(x.memory, part)
	}
	var kept []byte
	if kind == collective.Allreduce && l.can.Wired {
		var ok bool
		if kept, ok = l.borrowKept(b, total); !ok {
			return
		}
	}
	l.carry(collective.Arguments{Kind: kind, DType: b.DType, Reduce: op, Wire: b.Wire, Kept: kept, Parts: x.memory,
		Prescale: b.Prescale, Postscale: scale, Stage: l.onStage})
}

// grow returns n bytes for a copy of an input. If there is no memory, it aborts and returns nil.
func (l *lane) grow(n int) []byte {
	return l.growIn(&l.current.buffer, n)
}

func (l *lane) growIn(b *collective.Buffer, n int) []byte {
	buf, err := b.Grow(n)
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("buffer of %d bytes on %s: %w", n, l.engine.opts.Describe(l.engine.opts.Rank),
			err))
		return nil
	}
	return buf
}

// apart returns in, or a copy of it if in and out overlap. If there is no memory for the copy, it aborts and returns
// nil.
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

// affordable is the size in bytes of an output whose shape other ranks help to decide. If the memory of this host
// cannot hold it, affordable aborts and returns false: a claimed size never allocates more than the host has.
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

// wanted returns the caller's memory for the output of a part. ok is false if nobody wants the output: this rank has
// joined, or Alloc fails.
func (l *lane) wanted(p *part, shape tensor.Shape, n int) (out []byte, ok bool) {
	en := p.entry
	if en == nil {
		return nil, false
	}
	en.outShape = shape
	if en.op.Out != nil || en.op.Alloc == nil {
		return en.op.Out, true
	}
	out, err := en.op.Alloc(shape, n)
	if err != nil {
		p.err = errorf(UnknownError, "%s %q on %s: output of %d bytes: %v", en.request.Type.Describe().Name,
			p.resp.Name, l.engine.opts.Describe(l.engine.opts.Rank), n, err)
		return nil, false
	}
	en.op.Out = out
	return out, true
}

// output is wanted, with scratch memory in place of an output that nobody wants. It returns nil after an abort, and
// where a device's carrier needs no scratch memory.
func (l *lane) output(p *part, shape tensor.Shape, n int) []byte {
	out, ok := l.wanted(p, shape, n)
	if ok || l.current.direct {
		return out
	}
	return l.growIn(&l.current.spare, n)
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
	l.carry(collective.Arguments{Kind: collective.Broadcast, Root: root, Out: buf})
}

// rowsForJoined takes the place of a member's counts if that member has rows for a member that has joined.
const rowsForJoined = -1

// startAlltoall lets the members tell one another how many rows they send. Then exchangeRows moves the rows.
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
	l.carry(collective.Arguments{Kind: collective.AlltoallCounts, Counts: x.counts, Received: x.received})
}

// exchangeRows continues an Alltoall after its counts have arrived.
func exchangeRows(l *lane) {
	x := &l.current
	p := &x.parts[0]
	row := rowBytes(p.resp.Shape, p.resp.DType)
	total := int64(0)
	for m := range x.received {
		if x.received[m] == rowsForJoined {
			l.uncopy()
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
	p.bytes = 0
	for m := range x.counts {
		x.counts[m] *= row
		x.received[m] *= row
		p.bytes += int(x.counts[m]) // rows beyond the splits stay here
	}
	if x.direct {
		l.carryOnDevice(collective.Arguments{Kind: collective.Alltoall, Counts: x.counts, Received: x.received})
		return
	}
	var in []byte
	if p.entry != nil {
		in = p.entry.op.In[:p.bytes]
		if in = l.apart(in, out); in == nil {
			return
		}
	}
	l.carry(collective.Arguments{Kind: collective.Alltoall, In: in, Counts: x.counts, Out: out, Received: x.received})
}

// finishCurrent completes the tensors of the operation that is done, or continues with its next step.
func (l *lane) finishCurrent() {
	x := &l.current
	x.op = nil
	l.clock = thisMoment()
	if then := x.then; then != nil {
		x.then = nil
		then(l)
		return
	}
	if x.borrowed != nil {
		l.returnKept()
	}
	if len(x.copied) > 0 {
		l.store()
		return
	}
	if t := l.engine.tuner; t != nil && l == l.engine.world && x.parts[0].resp.Type == operation.Allreduce {
		t.executed(x.parts)
	}
	if l.engine.opts.NaNCheck != operation.NaNUnchecked && x.parts[0].resp.Type == operation.Pull && l.checkRows() {
		return
	}
	l.completeParts()
	x.drop()
}

// grown returns a slice of n elements in s's memory if that suffices.
func grown(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n)
	}
	return s[:n]
}
