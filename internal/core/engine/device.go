package engine

import (
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// Tensors in the memory of devices. The engine negotiates and orders operations on them as it does all others, and
// never touches their memory. A Request says which kind of memory its tensor has, and the coordinator refuses ranks
// that differ. So the Response says it, too, and all members go the same one of two ways:
//
//	direct   the device's carrier moves the data. All members have it on a device, and the carriers have agreed.
//	staged   fetch to host memory ─▶ as any operation there ─▶ store on the device

// Devices makes carriers for memory of devices.
type Devices interface {
	// Refuse says why an operation on memory of owner is impossible on this rank, nil if it is possible.
	Refuse(owner collective.Owner) error
	// Carrier makes a lane's carrier for such memory. It does not block. The new carrier may use host, the lane's
	// carrier for host memory, within Found.
	Carrier(o Opening, host collective.Carrier) DeviceCarrier
	// Share says that more than one lane may use the devices from now on. The driver calls it, at the same place of the
	// world's log on all ranks.
	Share()
	// Abort ends calls that hang in the devices. The goroutine that aborts the network calls it, because the driver
	// itself may hang in such a call. So Abort may be called on any goroutine, and more than once.
	Abort(cause error)
	// Settled reports whether the devices have done all that operations gave them which have ended for the program. It
	// does not block. After an error, which is the job's end, their results are lost. One thread calls it at a time.
	Settled() (bool, error)
	// Close frees what is kept for tensors. The engine calls it last. The program may still hold tensors.
	Close()
}

// DeviceCarrier carries a lane's operations on memory of devices. Such an operation has Parts and Owners, whatever its
// kind.
type DeviceCarrier interface {
	collective.Carrier
	// Found begins the work that the members do together before the first operation. It returns nil once that work is
	// done.
	Found() collective.Op
	// Carries reports whether the carrier can do this operation. The answer is the same on all members.
	Carries(kind operation.Kind, dtype tensor.DType, op tensor.ReduceOp, prescale, postscale float64) bool
	// Fetch copies each part's In to host memory, and sets the part's Out to the copy.
	Fetch(parts []collective.Part, owners []collective.Owner) collective.Op
	// Store copies each part's In, in host memory, to its Out.
	Store(parts []collective.Part, owners []collective.Owner) collective.Op
	// Reserve returns host memory that Store copies from fast. It is valid until the next Fetch.
	Reserve(bytes int) ([]byte, error)
	// Settled is Devices.Settled of this lane, which ends. The driver calls it before Close.
	Settled() (bool, error)
}

// copied keeps the memory of an Entry's op on a device while the op refers to copies in host memory.
type copied struct {
	entry   *Entry
	in, out []byte
	alloc   func(shape tensor.Shape, bytes int) ([]byte, error)
	free    func(out []byte)
}

// refusesDevice is the error for an op on memory of a device that cannot be done here, else nil.
func (l *lane) refusesDevice(d *operation.Descriptor, op *Op) *Error {
	if l.engine.opts.Devices == nil {
		return errorf(InvalidArgument, "%s of tensor %q is in the memory of a device, and this job knows only that of "+
			"hosts; copy the tensor there.", d.Name, op.Name)
	}
	if err := l.engine.opts.Devices.Refuse(op.Owner); err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", d.Name, op.Name, err)
	}
	return nil
}

// startOnDevice begins b, which some members have on devices. It returns false if the kind's own start has to begin b:
// if b moves in host memory and this rank has none of its tensors on a device, or if startDirect does not know the
// kind.
func (l *lane) startOnDevice(b *negotiate.Batch) bool {
	x := &l.current
	direct := b.Responses[0].Device == negotiate.GPUDevice
	mine := direct
	for i := range x.parts {
		mine = mine || x.parts[i].entry != nil && x.parts[i].entry.op.Owner != nil
	}
	if !mine {
		return false
	}
	if l.engine.opts.Devices == nil { // this rank has joined, and knows no devices
		l.engine.net.Abort(errorf(PreconditionError, "%s has joined, and cannot take part in operations on memory of "+
			"devices", l.engine.opts.Describe(l.engine.opts.Rank)))
		return true
	}
	if l.device == nil {
		l.device = l.engine.opts.Devices.Carrier(l.opening(), l.run)
		l.engine.polls = true
	}
	if direct {
		if founding := l.device.Found(); founding != nil {
			l.trace(x.parts, activityFound)
			l.begin(founding)
			x.then = func(l *lane) {
				if !l.startOnDevice(b) {
					l.startKind(b)
				}
			}
			return true
		}
		op, scale := operation.Combine(b.ReduceOp, b.Postscale, len(l.members))
		x.direct = l.device.Carries(b.Type, b.DType, op, b.Prescale, scale)
		if nan, _ := b.Type.Spreads(b.ReduceOp); nan && l.engine.opts.NaNCheck != operation.NaNUnchecked {
			x.direct = false // the check reads host memory
		}
		joined := func(r *negotiate.Response) bool { return len(r.Joined) > 0 }
		if b.Type == operation.Reducescatter && slices.ContainsFunc(b.Responses, joined) {
			x.direct = false // NCCL asks each member for all rows, and one that has joined has no memory for them
		}
	}
	switch {
	case x.direct:
		return l.startDirect(b)
	case b.DType.IsFloat8() && b.Type.Describe().Ops != 0:
		l.refuseFloat8(b)
	default:
		l.fetch(b)
	}
	return true
}

// refuseFloat8 fails reductions of floats of 8 bits that the device's carrier cannot do, on all members alike. The
// kernels for host memory cannot do them either.
func (l *lane) refuseFloat8(b *negotiate.Batch) {
	for i := range l.current.parts {
		p := &l.current.parts[i]
		l.complete(p.entry, errorf(InvalidArgument, "%s of tensor %q: there is no %v of %v here: it needs NCCL 2.24 "+
			"or newer and GPUs of compute capability 9.0 on all ranks, factors that the type has and several ranks "+
			"for them, and neither "+
			"GOROVOD_DETERMINISTIC nor GOROVOD_NAN_CHECK; or convert the tensor to bfloat16.",
			b.Type.Describe().Name, p.resp.Name, b.ReduceOp, b.DType))
	}
}

// begin makes op, of the device's carrier, the current one.
func (l *lane) begin(op collective.Op) {
	l.current.op, l.current.by, l.current.polled = op, l.device, l.device.Can().Polled
}

// startDirect lets the device's carrier move the data. It returns false for a kind whose own start does that.
func (l *lane) startDirect(b *negotiate.Batch) bool {
	x := &l.current
	resp := x.parts[0].resp
	for i := range x.parts {
		n, _ := x.parts[i].resp.Shape.NumElements() // checked when the Response was decoded
		x.parts[i].bytes = int(n) * b.DType.Size()
	}
	op, scale := operation.Combine(b.ReduceOp, b.Postscale, len(l.members))
	a := collective.Arguments{DType: b.DType, Reduce: op, Prescale: b.Prescale, Postscale: scale}
	switch resp.Type {
	case operation.Allreduce:
		a.Kind = collective.Allreduce
	case operation.Broadcast:
		a.Kind, a.Root = collective.Broadcast, l.member(int(resp.Root))
	case operation.Reduce:
		a.Kind, a.Root = collective.Reduce, l.member(int(resp.Root))
	case operation.Reducescatter:
		x.counts = x.counts[:0]
		for i := range x.parts {
			p := &x.parts[i]
			own := l.share(p.resp)
			l.wanted(p, l.ownRows(p.resp), own)
		}
		a.Kind, a.Counts = collective.Reducescatter, x.counts
	case operation.Allgather:
		x.counts = x.counts[:0]
		for i := range x.parts {
			p := &x.parts[i]
			_, own, ok := l.gathered(p)
			if !ok {
				return true
			}
			p.bytes = own
		}
		a.Kind, a.Counts = collective.Allgather, x.counts
	default:
		return false
	}
	l.carryOnDevice(a)
	return true
}

// carryOnDevice begins the operation that a describes on the memory of the current parts. Each part takes part with its
// part.bytes bytes.
func (l *lane) carryOnDevice(a collective.Arguments) {
	x := &l.current
	x.memory, x.owners = x.memory[:0], x.owners[:0]
	for i := range x.parts {
		p := &x.parts[i]
		a.Absent = a.Absent || len(p.resp.Joined) > 0
		part, owner := collective.Part{Bytes: p.bytes}, collective.Owner(nil)
		if p.entry != nil {
			part.In, part.Out, owner = p.entry.op.In, p.entry.op.Out, p.entry.op.Owner
			if len(part.In) > p.bytes {
				part.In = part.In[:p.bytes]
			}
		}
		x.memory, x.owners = append(x.memory, part), append(x.owners, owner)
	}
	a.Parts, a.Owners, a.Stage = x.memory, x.owners, l.onStage
	x.args = a
	l.begin(l.device.Start(&x.args))
}

// fetch begins b in host memory: it copies each input that is on a device there.
func (l *lane) fetch(b *negotiate.Batch) {
	x := &l.current
	x.memory, x.owners, x.copied = x.memory[:0], x.owners[:0], x.copied[:0]
	for i := range x.parts {
		if en := x.parts[i].entry; en != nil && en.op.Owner != nil {
			x.memory = append(x.memory, collective.Part{In: en.op.In, Bytes: len(en.op.In)})
			x.owners = append(x.owners, en.op.Owner)
			x.copied = append(x.copied, copied{en, en.op.In, en.op.Out, en.op.Alloc, en.op.Free})
		}
	}
	if len(x.copied) == 0 { // this rank has joined
		l.startKind(b)
		return
	}
	l.trace(x.parts, activityFetch)
	x.then = (*lane).fetched
	l.begin(l.device.Fetch(x.memory, x.owners))
}

// fetched continues the current batch in host memory.
func (l *lane) fetched() {
	x := &l.current
	for i := range x.copied {
		op := &x.copied[i].entry.op
		op.In = x.memory[i].Out
		op.Free = nil
		switch {
		case op.Out == nil && op.Alloc != nil:
			op.Alloc = func(_ tensor.Shape, bytes int) ([]byte, error) { return l.device.Reserve(bytes) }
		case len(op.Out) == len(op.In):
			op.Out = op.In
		case len(op.Out) > 0:
			out, err := l.device.Reserve(len(op.Out))
			if err != nil {
				l.engine.net.Abort(err)
				return
			}
			op.Out = out
		}
	}
	l.startKind(&l.plan[l.next-1])
}

// store copies the results from host memory to the outputs on devices.
func (l *lane) store() {
	x := &l.current
	x.memory, x.owners = x.memory[:0], x.owners[:0]
	for i := range x.copied {
		c, en := &x.copied[i], x.copied[i].entry
		host := en.op.Out
		if c.out == nil && c.alloc != nil && host != nil {
			var err error
			if c.out, err = c.alloc(en.outShape, len(host)); err != nil {
				l.failPart(en, len(host), err)
			}
		}
		if len(c.out) > 0 {
			x.memory = append(x.memory, collective.Part{In: host, Out: c.out, Bytes: len(host)})
			x.owners = append(x.owners, en.op.Owner)
		}
	}
	l.trace(x.parts, activityStore)
	l.uncopy()
	l.begin(l.device.Store(x.memory, x.owners))
}

// failPart fails the tensor of en on this rank alone, because there is no memory for its output.
func (l *lane) failPart(en *Entry, bytes int, err error) {
	for i := range l.current.parts {
		if p := &l.current.parts[i]; p.entry == en {
			p.err = errorf(UnknownError, "%s %q on %s: output of %d bytes: %v", en.request.Type.Describe().Name,
				p.resp.Name, l.engine.opts.Describe(l.engine.opts.Rank), bytes, err)
		}
	}
}

// uncopy gives the operations whose memory was copied their own memory back.
func (l *lane) uncopy() {
	x := &l.current
	for i := range x.copied {
		c := &x.copied[i]
		op := &c.entry.op
		op.In, op.Out, op.Alloc, op.Free = c.in, c.out, c.alloc, c.free
	}
	clear(x.copied)
	x.copied = x.copied[:0]
}

// settled reports whether the devices have done all operations that have ended for the program. If they do not end, it
// aborts.
func (e *Engine) settled() bool {
	if e.opts.Devices == nil {
		return true
	}
	settled, err := e.opts.Devices.Settled()
	if err != nil {
		e.net.Abort(err)
	}
	return settled
}

// betweenLooks is the time between two questions whether devices have settled.
const betweenLooks = time.Millisecond

// Settle waits until the devices have settled, unless the engine fails meanwhile. Call it before Shutdown, and before
// other ranks may end: a device may need theirs.
func (e *Engine) Settle() {
	for e.failure.Load() == nil && e.net.Err() == nil && !e.settled() {
		time.Sleep(betweenLooks)
	}
}

// emptying waits until a lane on devices has executed what all of its members will execute, and until the device has
// done it.
type emptying struct{ lane *lane }

// empty waits for the set that the current batch removes, and continues then.
func (l *lane) empty(then func(l *lane)) {
	x, e := &l.current, l.engine
	e.mu.Lock()
	s := e.sets[int(x.parts[0].resp.Root)]
	e.mu.Unlock()
	if s == nil || s.lane == nil || s.lane.device == nil {
		then(l)
		return
	}
	x.op, x.by, x.polled, x.then = emptying{s.lane}, l.run, true, then
}

// Advance is collective.Op's.
func (w emptying) Advance() (bool, error) {
	if l := w.lane; l.current.op != nil || l.next < len(l.plan) {
		return false, nil
	}
	return w.lane.device.Settled()
}

// closeCarriers closes this member's carriers of the lane, and notes whether they are quiet.
func (l *lane) closeCarriers(cause error) {
	quiet := l.device == nil || l.closeCarrier(l.device, cause) // first, because it may use run
	l.quiet = l.closeCarrier(l.run, cause) && quiet
}

// closeCarrier closes c and reports whether c is quiet. A panic of c's is an abort, and c may still be at work.
func (l *lane) closeCarrier(c interface{ Close(error) bool }, cause error) (quiet bool) {
	defer func() {
		if p := recover(); p != nil {
			l.engine.net.Abort(l.engine.catch(p))
			quiet = false
		}
	}()
	return c.Close(cause)
}

// Disown releases the owners of operations that get no Entry, and returns err.
func Disown(err *Error, ops ...Op) *Error {
	for i := range ops {
		if ops[i].Owner != nil {
			ops[i].Owner.Release()
		}
	}
	return err
}
