// Package negotiate decides what a lane executes next. Worker and Coordinator are pure state machines: a call is an
// event, and its results are the messages to send. There are no goroutines, clocks, locks or sockets inside, so a test
// can try every interleaving in one thread. The engine calls them, one goroutine at a time per lane, and carries their
// messages over a transport.Board.
//
// What the members and the Coordinator know of a tensor by its name, in each process set:
//
//	who has it     what                                     from                     to
//	Coordinator    tally: the Requests that have come       a round's first Request  its last: all have asked, or joined
//	Coordinator    recent: the last Response to the name    its first Response       its card, or many later names
//	board          card: a generation, and members' marks   its second, equal use    Retire, see Kept
//	Coordinator    the Response that the card stands for    with the card            with the card
//	each Worker    the same Response                        its record in the log    the record that retires it
//	each Worker    Kept: what the member's codec keeps      with the Worker's card   with the Worker's card
package negotiate

import (
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// CPUDevice is the Device of a tensor in host memory.
const CPUDevice = -1

// GPUDevice is the Device of a tensor in the memory of a GPU. A rank does not say which GPU it is, so that equal
// Requests of ranks can travel as one.
const GPUDevice = 0

// StagedDevice is the Device of a tensor of a GPU that its rank has in host memory, as a copy. If one rank of an
// operation says so, the Response says it, too, and the data of all ranks goes through host memory.
const StagedDevice = 1

// MaxName is the longest tensor name in bytes.
const MaxName = 16 << 10

// MaxRefused is the longest reason for a refusal in bytes.
const MaxRefused = 4 << 10

// MaxDims is the largest number of dimensions.
const MaxDims = 255

// MaxRanks is the largest number of ranks in a Request.
const MaxRanks = 16 << 10

// Request says that one member has submitted a tensor, or asks for something else, see operation.Kind.
type Request struct {
	Type      operation.Kind
	DType     tensor.DType
	ReduceOp  tensor.ReduceOp // Allreduce only
	Wire      tensor.Wire     // Allreduce only: how the elements travel between hosts
	Name      string
	Root      int32 // Broadcast: world rank; RemoveProcessSet: the set's id; Pull and Push: the table's number
	Device    int32 // CPUDevice, GPUDevice or StagedDevice
	Shape     tensor.Shape
	Prescale  float64
	Postscale float64
	// Group names the operation of GroupSize tensors that this one belongs to,
	// which become ready together; "" and 0 if it stands alone. A member posts
	// the tensors of a group one after the other, or marks all of them at once.
	Group     string
	GroupSize int32
	Ranks     []int32 // AddProcessSet: the set's world ranks, ascending
	// Refused, if not empty, says why the sender does not take part: the tensor fails on all members with this text.
	Refused string
	// Alone says that another Allreduce of the sender uses the tensor's memory, too, so the two must not be fused.
	Alone bool
	// Contested says that the sender's cache has a card for the name, and yet the sender asks in full. Members that
	// have marked the card ask in full only after the coordinator has seen this Request, so it must not wait for them
	// (Combiner).
	Contested bool
}

// NoCard is the Card of a Response that is not cached.
const NoCard = ^uint32(0)

// Response tells every member to execute an operation, or to fail it.
type Response struct {
	Type      operation.Kind
	Err       string // not empty: fail the tensor with PRECONDITION_ERROR and this text
	DType     tensor.DType
	ReduceOp  tensor.ReduceOp
	Wire      tensor.Wire
	Name      string
	Root      int32 // Broadcast: world rank; Join: the last to join; Settle: who asked; else the process set's id
	Device    int32
	Shape     tensor.Shape // Allgather: the first dimension is the sum over the members; Alltoall: it is 0
	FirstDims []int64      // Allgather: the first dimension of each member, in member order; Tune: the settings
	Prescale  float64
	Postscale float64
	Group     string // as in the Requests
	GroupSize int32
	Alone     bool // as in one of the Requests
	// Joined lists the lane members, ascending, that have joined and did not ask for this tensor: they execute it
	// without an input of their own.
	Joined []int32
	// Card and Gen name the cache's card by which this Response can be repeated; NoCard if it cannot. A card that
	// belonged to another name now belongs to this one.
	Card uint32
	Gen  uint32
	// Last is the lane member whose Request came last. It is -1 for a Join, and if a rank that joined came last. For a
	// Response that is repeated by its card, the board knows the last member: transport.Board.Last.
	Last int32
	// Kept is not sent. Worker.Apply sets it where the name has a card, and the compression keeps something.
	Kept *Kept
}
