// Package operation describes each kind of operation once: how it is called, what ranks must agree on, what comes
// out, how it combines elements, and what fuses. The table in table.go says it; the negotiation, the engine, the Go
// and C interfaces, and through these the Python front ends read it there. The package holds no state and no data.
package operation

// Kind is what is asked for. The numbers below 64 are Horovod's request types. C callers and the wire see the numbers.
type Kind uint8

// Role is what a kind is for.
type Role uint8

// The roles. The zero value is that of a number which is no kind.
const (
	unknown    Role = iota
	Collective      // users submit it with a tensor
	Meeting         // users submit it without a tensor, under a name that is always the same
	SetChange       // the engine submits it for all ranks of the world, also for those that have joined
	Step            // the coordinator and the engine use it between them; nobody submits it
)

// Field is a set of what the Requests of all ranks must have in common, besides the kind, the element type and the
// kind of device. What is not in a kind's set has no meaning for it, and is not compared, sent on or cached.
type Field uint16

// The fields.
const (
	Shape   Field = 1 << iota // all dimensions
	Rows                      // there is a first dimension; it may differ only where Tail is set, too
	Tail                      // all dimensions but the first
	Factors                   // prescale and postscale
	Op                        // the reduce operation
	Wire                      // how elements travel between hosts
	Root                      // a world rank that is a member
	Ranks                     // the members of a new process set
	Set                       // the number of a process set
)

// Output is what comes out on a rank.
type Output uint8

// The outputs.
const (
	Nothing    Output = iota
	LikeInput         // a tensor of the input's shape; it may be the input itself
	OfAll             // the rows of all members, in the order of the members
	Sent              // the rows that the members have sent to this one, in the order of the members
	OwnRows           // this member's share of the rows: see Share
	OnRootOnly        // as LikeInput on the root; the other members have no output
)

// Absence is what becomes of the operation when members that have joined have not asked for it.
type Absence uint8

// The ways.
const (
	TakesZeros   Absence = iota // they take part with zeros
	NeedsAll                    // it fails, unless joined members take part in all operations, with empty tensors
	NeedsTheRoot                // they take part with zeros, but it fails if the root is among them
)

// Descriptor is what there is to know of a kind. It must not be changed.
type Descriptor struct {
	Name     string // for errors, such as "Allreduce"
	Label    string // for Horovod's messages, records and the timeline, such as "ALLREDUCE"
	Role     Role
	Agree    Field
	Output   Output
	Activity string // how the timeline calls the moving of the data

	// Alike names the kind whose operations without a name are counted with this one's; see Noname.
	Alike string

	Ops    Ops    // the reduce operations that it can do; none if it does not combine elements
	Types  DTypes // the element types that it takes
	Absent Absence
	Advice string // for who meets the failure of NeedsAll

	// Fuses says that several operations which agree on all fields but the shape can run as one.
	Fuses bool
	// Repeats says that an operation which was agreed on before can be asked for by a mark on the board.
	Repeats bool
	// TakesTurns says that operations of one process set from one root may write the same memory: they do not overlap
	// in time and bring the same values, as of weights that a model has under two names.
	TakesTurns bool
	// Idempotent are the reduce operations that change nothing when they run again on their result, without factors:
	// the average of averages is the average. Such operations of one process set may have the same memory, in place;
	// they run one after the other then.
	Idempotent Ops
	// PrescaleFused says that a prescale needs room in the fusion buffer, as in Horovod.
	PrescaleFused bool

	noname, nonameGrouped string // made of Alike
}

// Has reports whether all of fields are among those that ranks agree on.
func (d *Descriptor) Has(fields Field) bool { return d.Agree&fields == fields }

// Describe returns what there is to know of k. For a number that is no kind it has no Role.
func (k Kind) Describe() *Descriptor { return byKind[k] }

// Valid reports whether k is one of the constants.
func (k Kind) Valid() bool { return byKind[k].Role != unknown }

// String is the name that Horovod's messages use, such as "ALLREDUCE".
func (k Kind) String() string { return byKind[k].Label }

// ChangesSets reports whether k changes the process sets.
func (k Kind) ChangesSets() bool { return byKind[k].Role == SetChange }

// All lists the kinds.
func All() []Kind {
	var all []Kind
	for i := range byKind {
		if k := Kind(i); k.Valid() {
			all = append(all, k)
		}
	}
	return all
}
