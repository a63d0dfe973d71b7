package operation

import (
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The kinds.
const (
	Allreduce     Kind = 0
	Allgather     Kind = 1
	Broadcast     Kind = 2
	Join          Kind = 3
	Adasum        Kind = 4
	Alltoall      Kind = 5
	Barrier       Kind = 6
	Reducescatter Kind = 7

	// The numbers from here on are gorovod's.

	// AddProcessSet and RemoveProcessSet are sent on the world's lane by all of its members, also by those that have
	// joined.
	AddProcessSet    Kind = 64
	RemoveProcessSet Kind = 65
	// Settle asks the coordinator to retire all cards. A member that has read the Response with its own rank as Root
	// has no mark under way any more. Each of its marks has led to a record that the member has read, has become a
	// Request at the coordinator, or has come back as stale. A member must have no mark under way when it joins.
	Settle Kind = 66
	// Tune is a Response without a Request. Member 0 publishes it. It changes the lane's settings to FirstDims for all
	// later records.
	Tune Kind = 67

	Reduce Kind = 68

	// Gather and Scatter move rows as an Alltoall does, to one root and from it. They are separate kinds, so that ranks
	// compare the roots, and messages name the call.
	Gather  Kind = 69
	Scatter Kind = 70
	// NamedBarrier is a barrier that has a name, as a collective has, and an empty tensor. Several may be pending.
	// Messages for users call it a barrier.
	NamedBarrier Kind = 71

	// Pull and Push read and change rows of a sparse table. Their tensor has a row for each key that the member names.
	// Root is the table's number on the process set.
	Pull Kind = 72
	Push Kind = 73
)

// table has a line for each kind. The activities are those of Horovod's Gloo, which the native transports replace.
var table = map[Kind]Descriptor{
	Allreduce: {
		Name: "Allreduce", Label: "ALLREDUCE", Role: Collective, Agree: Shape | Factors | Op | Wire, Output: LikeInput,
		Activity: "GLOO_ALLREDUCE", Alike: "allreduce", Ops: elementwise | bits, Types: allTypes,
		Fuses: true, Repeats: true, Idempotent: idempotent,
	},
	Adasum: { // an allreduce whose reduce operation is Adasum: see Of
		Name: "Adasum", Label: "ADASUM", Role: Collective, Agree: Shape | Factors, Output: LikeInput,
		// Horovod has it only over MPI.
		Activity: "MPI_ADASUM_ALLREDUCE", Alike: "allreduce", Ops: adasum, Types: floats,
		Fuses: true, Repeats: true,
	},
	Allgather: {
		Name: "Allgather", Label: "ALLGATHER", Role: Collective, Agree: Rows | Tail, Output: OfAll,
		Activity: "GLOO_ALLGATHER", Alike: "allgather", Types: allTypes,
		Absent: NeedsAll, Advice: " Specify sparse_to_dense=True if using DistributedOptimizer",
		Fuses: true, Repeats: true,
	},
	Broadcast: {
		Name: "Broadcast", Label: "BROADCAST", Role: Collective, Agree: Shape | Root, Output: LikeInput,
		Activity: "GLOO_BCAST", Alike: "broadcast", Types: allTypes,
		Absent: NeedsAll, Repeats: true, TakesTurns: true,
	},
	Alltoall: {
		Name: "Alltoall", Label: "ALLTOALL", Role: Collective, Agree: Rows | Tail, Output: Sent,
		Activity: "MPI_ALLTOALL", Alike: "alltoall", Types: allTypes, // Horovod's name over Gloo, too
		Absent: NeedsAll, Repeats: true,
	},
	Reducescatter: {
		Name: "Reducescatter", Label: "REDUCESCATTER", Role: Collective, Agree: Shape | Rows | Factors | Op,
		Output: OwnRows, Activity: "GLOO_REDUCESCATTER", Alike: "reducescatter",
		Ops: elementwise | bits, Types: allTypes,
		Absent: NeedsAll, Fuses: true, Repeats: true, PrescaleFused: true, AverageInPostscale: true,
	},
	Reduce: {
		Name: "Reduce", Label: "REDUCE", Role: Collective, Agree: Shape | Factors | Op | Root, Output: OnRootOnly,
		Activity: "GLOO_REDUCE", Alike: "reduce", Ops: elementwise | bits, Types: allTypes,
		Absent: NeedsTheRoot, Repeats: true,
	},
	Gather: {
		Name: "Gather", Label: "GATHER", Role: Collective, Agree: Rows | Tail | Root, Output: Sent,
		Activity: "GLOO_GATHER", Alike: "gather", Types: allTypes,
		Absent: NeedsAll, Repeats: true,
	},
	Scatter: {
		Name: "Scatter", Label: "SCATTER", Role: Collective, Agree: Rows | Tail | Root, Output: Sent,
		Activity: "GLOO_SCATTER", Alike: "scatter", Types: allTypes,
		Absent: NeedsAll, Repeats: true,
	},
	NamedBarrier: {
		Name: "Barrier", Label: "BARRIER", Role: Collective, Agree: Shape, Output: LikeInput,
		Activity: "GLOO_BARRIER", Alike: "named_barrier", Types: allTypes,
		Repeats: true,
	},
	// Members that have joined name no keys, and go on serving those of the others.
	Pull: {
		Name: "Pull", Label: "PULL", Role: Collective, Agree: Rows | Tail | Table, Output: OfKeys,
		Activity: "PULL", Alike: "pull", Types: rowTypes, Fuses: true, Repeats: true,
	},
	Push: {
		Name: "Push", Label: "PUSH", Role: Collective, Agree: Rows | Tail | Table, Output: OfKeys,
		Activity: "PUSH", Alike: "push", Types: rowTypes, Fuses: true, Repeats: true,
	},
	Barrier: {Name: "Barrier", Label: "BARRIER", Role: Meeting, Alike: "barrier", Types: allTypes, Repeats: true},
	Join:    {Name: "Join", Label: "JOIN", Role: Meeting, Alike: "join", Types: allTypes},

	AddProcessSet: {
		Name: "operation 64", Label: "ADD_PROCESS_SET", Role: SetChange, Agree: Ranks, Types: allTypes,
	},
	RemoveProcessSet: {
		Name: "operation 65", Label: "REMOVE_PROCESS_SET", Role: SetChange, Agree: Set, Types: allTypes,
	},
	Settle: {Name: "operation 66", Label: "SETTLE", Role: Step},
	Tune:   {Name: "operation 67", Label: "TUNE", Role: Step},
}

// byKind is the table, with a line for every number.
var byKind = func() (all [256]*Descriptor) {
	for i := range all {
		d, ok := table[Kind(i)]
		if !ok {
			d = Descriptor{Name: "operation " + strconv.Itoa(i), Label: "request type " + strconv.Itoa(i)}
		}
		if d.Alike != "" {
			d.noname, d.nonameGrouped = d.Alike+".noname", "grouped_"+d.Alike+".noname"
		}
		all[i] = &d
	}
	return all
}()

// Ops is a set of reduce operations.
type Ops uint16

// DTypes is a set of element types.
type DTypes uint16

const (
	elementwise Ops = 1<<tensor.Average | 1<<tensor.Sum | 1<<tensor.Min | 1<<tensor.Max | 1<<tensor.Product
	bits        Ops = 1<<tensor.BitAnd | 1<<tensor.BitOr | 1<<tensor.BitXor
	adasum      Ops = 1 << tensor.Adasum
	idempotent  Ops = 1<<tensor.Average | 1<<tensor.Min | 1<<tensor.Max | 1<<tensor.BitAnd | 1<<tensor.BitOr

	allTypes DTypes = 1<<tensor.NumDTypes - 1
	floats   DTypes = 1<<tensor.Float16 | 1<<tensor.BFloat16 | 1<<tensor.Float32 | 1<<tensor.Float64
	rowTypes DTypes = 1 << tensor.Float32
	floats8  DTypes = 1<<tensor.Float8E4M3FN | 1<<tensor.Float8E5M2
)

// TypesOf returns the element types that d takes with op in host memory: operations on bits take integers and bool, and
// bool has no average. Nothing combines floats of 8 bits in host memory.
func (d *Descriptor) TypesOf(op tensor.ReduceOp) DTypes { return d.typesOf(op) &^ floats8 }

// TypesOnDevices returns the element types that d takes with op in the memory of devices. Some devices combine floats
// of 8 bits.
func (d *Descriptor) TypesOnDevices(op tensor.ReduceOp) DTypes { return d.typesOf(op) }

func (d *Descriptor) typesOf(op tensor.ReduceOp) DTypes {
	switch {
	case bits.Has(op):
		return d.Types &^ floats &^ floats8
	case op == tensor.Average:
		return d.Types &^ (1 << tensor.Bool)
	}
	return d.Types
}

// Has reports whether op is in the set.
func (s Ops) Has(op tensor.ReduceOp) bool { return op.Valid() && s&(1<<op) != 0 }

// List returns the reduce operations of the set.
func (s Ops) List() []tensor.ReduceOp {
	var all []tensor.ReduceOp
	for op := range tensor.ReduceOp(tensor.NumReduceOps) {
		if s.Has(op) {
			all = append(all, op)
		}
	}
	return all
}

// String lists the operations as Horovod's messages do: "AVERAGE, MIN and SUM".
func (s Ops) String() string {
	var names []string
	for _, op := range s.List() {
		names = append(names, strings.ToUpper(op.String()))
	}
	return listed(names)
}

// listed is a list in words: "a, b and c".
func listed(names []string) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return b.String()
}

// Has reports whether dt is in the set.
func (s DTypes) Has(dt tensor.DType) bool { return dt.Valid() && s&(1<<dt) != 0 }

// List returns the element types of the set.
func (s DTypes) List() []tensor.DType {
	var all []tensor.DType
	for dt := range tensor.DType(tensor.NumDTypes) {
		if s.Has(dt) {
			all = append(all, dt)
		}
	}
	return all
}

// String lists the types: "uint8, int8 and bool".
func (s DTypes) String() string {
	var names []string
	for _, dt := range s.List() {
		names = append(names, dt.String())
	}
	return listed(names)
}
