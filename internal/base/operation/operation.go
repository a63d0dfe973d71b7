// Package operation describes each kind of operation once: its names, the fields in which ranks must agree, its output,
// the element types that it combines, and whether it fuses. The table in table.go is the only place for these facts.
// The negotiation, the engine, the Go and C interfaces, and through these the Python front ends read it. The package
// holds no state and no data.
package operation

// Kind numbers the kinds of operation. The numbers below 64 are Horovod's request types. C callers and the wire see
// them.
type Kind uint8

// Role says how a kind is used.
type Role uint8

// The roles. The zero value is that of a number without a kind.
const (
	unknown    Role = iota
	Collective      // users submit it with a tensor
	Meeting         // users submit it without a tensor, under a name that is always the same
	SetChange       // the engine submits it for all ranks of the world, also for those that have joined
	Step            // the coordinator and the engine use it between them; nobody submits it
)

// Field is a set of fields in which the Requests of all ranks must agree, besides the kind, the element type and the
// kind of device. A field outside a kind's set has no meaning for it: it is neither compared nor sent nor cached.
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
	Table                     // the number of a sparse table
)

// Output says what a rank gets.
type Output uint8

// The outputs.
const (
	Nothing    Output = iota
	LikeInput         // a tensor of the input's shape; it may be the input itself
	OfAll             // the rows of all members, in the order of the members
	Sent              // the rows that the members have sent to this one, in the order of the members
	OwnRows           // this member's share of the rows: see Share
	OnRootOnly        // as LikeInput on the root; the other members have no output
	OfKeys            // of a Pull, a row for each key that the member has named; of a Push, nothing
)

// Absence says how the operation runs if some members have joined, and so have not asked for it.
type Absence uint8

// The ways.
const (
	TakesZeros   Absence = iota // joined members take part with zeros
	NeedsAll                    // it fails, unless joined members take part in all operations, with empty tensors
	NeedsTheRoot                // they take part with zeros, but the operation fails if the root is among them
)

// Descriptor is the table's line for a kind. Do not change it.
type Descriptor struct {
	Name     string // for errors, such as "Allreduce"
	Label    string // for Horovod's messages, records and the timeline, such as "ALLREDUCE"
	Role     Role
	Agree    Field
	Output   Output
	Activity string // the timeline's name for the moving of the data

	// Alike is the kind with which this one shares the numbers of operations without a name; see Noname.
	Alike string

	Ops    Ops    // the reduce operations that it can do; none if it does not combine elements
	Types  DTypes // the element types that it takes; see also TypesOf and TypesOnDevices
	Absent Absence
	Advice string // for a user who meets the failure of NeedsAll

	// Fuses says that several operations that agree on all fields but the shape can run as one, of several parts.
	// Tables may differ, too.
	Fuses bool
	// Repeats says that a mark on the board can ask for an operation on which the ranks have agreed before.
	Repeats bool
	// TakesTurns says that operations of one process set from one root may write the same memory, for example weights
	// that a model has under two names: the operations run one after the other, and bring the same values.
	TakesTurns bool
	// Idempotent are the reduce operations that change nothing when they run again on their result, without factors:
	// the average of averages is the average. Such operations of one process set may use the same memory, in place.
	// Then they run one after the other.
	Idempotent Ops
	// AverageInPostscale says that Requests name an Average a Sum, and that the postscales distinguish the two, as in
	// Horovod.
	AverageInPostscale bool
	// PrescaleFused says that a prescale needs room in the fusion buffer, as in Horovod.
	PrescaleFused bool

	noname, nonameGrouped string // made of Alike
}

// Has reports whether all of fields are among those that ranks agree on.
func (d *Descriptor) Has(fields Field) bool { return d.Agree&fields == fields }

// Describe returns the table's line for k. For a number without a kind it has no Role.
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
