package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Carrier moves the data of one lane's operations: a Lane over the network's transports, or a replacement such as MPI.
// The lane's driver calls it: one call at a time, but perhaps each on another thread. Only Close may block, for a
// second or two. All members start the same operations in the same order, one at a time.
type Carrier interface {
	// Start begins an operation. The Op is valid until the next Start; it keeps only the memory of a's fields.
	Start(a *Arguments) Op
	// Can says what the carrier can do. It is the same for the carrier's whole life.
	Can() Abilities
	// Moved counts the steps that operations have made. If Advance has not changed the number, it could do nothing.
	Moved() uint64
	// Sent counts since the carrier was made, if Abilities.Counts says so; otherwise the engine never calls it.
	Sent() Sent
	// Tune changes the parameters of later operations. All members call it between the same two operations.
	Tune(t Tuning)
	// Close ends this member's part, after the last operation. cause says why the engine ends early; it is nil if a
	// process set is removed or all leave in order. quiet is false if an operation under way could not be cancelled:
	// its buffers may still be written to, so the process has to end.
	Close(cause error) (quiet bool)
	// Free returns the carrier's memory, after a quiet Close, and after the network's part of the lane has been closed.
	Free()
}

// Owner stands for memory of a device: the memory of one tensor, on this member. The addresses of such memory are
// written as slices, but only the carrier that knows it may read or write it.
type Owner interface {
	// Release ends the operation's use of the memory. The engine calls it once, when it forgets the operation.
	Release()
}

// Abilities tell the engine what a carrier can do. The abilities that decide how an operation is done are the same on
// all members.
type Abilities struct {
	// Wired: elements travel over connections, so that an Allreduce's Wire and Kept may have an effect.
	Wired bool
	// Shared: the members share memory.
	Shared bool
	// Hierarchical: the members are on several hosts, and allreduces may consist of parts inside the hosts and parts
	// between them.
	Hierarchical bool
	// ChoosesForm: Hierarchical is set, and only a model of the cost decides, so that Tuning.Flat has an effect.
	ChoosesForm bool
	// Polled: nothing rings this rank's bell for an operation under way. The driver has to poll it.
	Polled bool
	// Counts: the carrier knows what it sends, and Sent says it. Otherwise figures have the bytes that each operation
	// takes at least, as sent by Way.
	Counts bool
	Way    feed.Way
	// Inspects: an Inspector has an effect on Allreduce, on Reducescatter, and on Reduce without a prescale; on the
	// first two if they have Parts.
	Inspects bool
}

// Kind is the kind of an operation. The method of Lane with the same name documents it.
type Kind uint8

// The kinds, each with the Arguments that it has.
const (
	Allreduce      Kind = iota // DType, Reduce, Wire, Kept, Parts, Prescale, Postscale; from Packing: In and Out
	Adasum                     // DType, Parts, Prescale, Postscale; from Packing: In and Out, and the parts' Lengths
	Allgather                  // Parts and Counts; from Packing, and where there is one piece: In and Out, and Counts
	Broadcast                  // Root, Out (also the input)
	Alltoall                   // In, Out, Counts (to send), Received
	AlltoallCounts             // Counts (to send), Received
	Reducescatter              // as Allgather, with DType, Reduce, Prescale, Postscale
	Reduce                     // Root, DType, Reduce, In, Out, Prescale, Postscale
	Barrier                    // none
)

// Arguments describe one operation.
type Arguments struct {
	Kind    Kind
	DType   tensor.DType
	Reduce  tensor.ReduceOp
	Wire    tensor.Wire
	Root    int // a member
	In, Out []byte
	Kept    []byte // the residuals of all parts, for a Wire that keeps errors; nil for none
	Parts   []Part
	// Owners are the owners of Parts, in their order; nil for a part that a member that has joined does not have. There
	// are Owners only for memory that is not the host's. Such an operation has Parts, whatever its kind.
	Owners []Owner
	// Absent, which has a meaning only with Owners, says that a member that has joined takes part without tensors of
	// its own. It is the same on all members.
	Absent bool

	Prescale, Postscale float64
	// Counts and Received have an entry for each member. If an Allgather or a Reducescatter has several Parts, the
	// entries of the first one come first, then those of the second, and so on.
	Counts, Received []int64
	Lengths          []int
	// Stage, if set, is called at each stage of an operation that has Parts.
	Stage func(Stage)
	// Inspect, if set, looks at this member's input before any member combines it. Either all members have one, or
	// none has.
	Inspect Inspector
}

// Stage is a stage of an operation on parts, for the timeline.
type Stage uint8

// The stages, in their order. An operation that copies nothing has only Moving.
const (
	PackingIn Stage = iota
	Moving
	PackingOut
)

func (a *Arguments) enter(s Stage) {
	if a.Stage != nil {
		a.Stage(s)
	}
}

// Start begins the operation that a describes: see the method for its kind.
func (l *Lane) Start(a *Arguments) Op {
	l.inspect = a.Inspect // see there
	switch a.Kind {
	case Allreduce:
		switch {
		case a.Parts == nil:
			return l.AllreduceAs(a.Wire, a.DType, a.Reduce, a.In, a.Out, a.Postscale, a.Kept)
		case l.takesParts():
			a.enter(Moving)
			return l.AllreduceParts(a.DType, a.Reduce, a.Parts, a.Prescale, a.Postscale)
		}
		return l.packing.Start(l, a)
	case Adasum:
		if a.Parts != nil {
			return l.packing.Start(l, a)
		}
		copyTo(a.Out, a.In)
		return l.Adasum(a.DType, a.Out, a.Lengths, a.Postscale)
	case Allgather:
		switch {
		case a.Parts == nil:
			return l.Allgather(a.In, a.Out, a.Counts)
		case l.takesParts():
			a.enter(Moving)
			return l.AllgatherParts(a.Parts, a.Counts)
		}
		return l.packing.Start(l, a)
	case Broadcast:
		return l.Broadcast(a.Root, a.Out)
	case Alltoall:
		return l.Alltoall(a.In, a.Counts, a.Out, a.Received)
	case AlltoallCounts:
		return l.AlltoallCounts(a.Counts, a.Received)
	case Reducescatter:
		switch {
		case a.Parts != nil && l.takesParts():
			a.enter(Moving)
			return l.ReducescatterParts(a.DType, a.Reduce, a.Parts, a.Counts, a.Prescale, a.Postscale)
		case Packs(a):
			return l.packing.Start(l, a)
		}
		return l.Reducescatter(a.DType, a.Reduce, a.In, a.Out, a.Counts, a.Postscale)
	case Reduce:
		if Packs(a) {
			return l.packing.Start(l, a)
		}
		return l.Reduce(a.Root, a.DType, a.Reduce, a.In, a.Out, a.Postscale)
	case Barrier:
		return l.Barrier()
	}
	return l.refuse("operation %d is unknown", a.Kind)
}

// Can says what the lane's transports allow.
func (l *Lane) Can() Abilities {
	return Abilities{Wired: !l.takesParts(), Shared: l.overShared(), Hierarchical: l.mayBeHierarchical(),
		ChoosesForm: l.mayChooseForm(), Counts: true, Inspects: l.takesParts()}
}

func (l *Lane) overShared() bool { return l.shared != nil && l.comm == nil }

// takesParts reports that AllreduceParts can be called. Then laying tensors side by side gains nothing.
func (l *Lane) takesParts() bool { return l.size == 1 || l.overShared() }

func (l *Lane) mayBeHierarchical() bool { return l.hier != nil && l.options.Allreduce != Flat }

func (l *Lane) mayChooseForm() bool {
	return l.mayBeHierarchical() && l.options.Allreduce == ByModel && !l.options.Deterministic
}

// Close does nothing, because the network closes the transport.
func (l *Lane) Close(error) bool { return true }

// Free returns the memory of packed parts and of the like, which the transport may use until it has been closed.
func (l *Lane) Free() {
	l.packing.Free()
	l.reducescatterWhole.memory.Free()
}
