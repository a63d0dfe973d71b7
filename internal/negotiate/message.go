// Package negotiate decides what a lane executes next. Worker and Coordinator
// are pure state machines: a call is an event, what it returns are the messages
// to send. There are no goroutines, clocks, locks or sockets inside, so every
// interleaving can be tested in one thread. The engine calls them, one
// goroutine at a time per lane, and carries their messages over a
// transport.Board.
package negotiate

import "github.com/gorovod/gorovod/internal/tensor"

// RequestType says which collective is meant. The numbers are Horovod's.
type RequestType uint8

// The request types.
const (
	Allreduce     RequestType = 0
	Allgather     RequestType = 1
	Broadcast     RequestType = 2
	Join          RequestType = 3
	Adasum        RequestType = 4
	Alltoall      RequestType = 5
	Barrier       RequestType = 6
	Reducescatter RequestType = 7
)

// CPUDevice is the Device of a tensor in host memory.
const CPUDevice = -1

// MaxName is the longest tensor name in bytes.
const MaxName = 16 << 10

// MaxDims is the largest number of dimensions.
const MaxDims = 255

// Request says that one member has submitted a tensor.
type Request struct {
	Type      RequestType
	DType     tensor.DType
	ReduceOp  tensor.ReduceOp // Allreduce only
	Name      string
	Root      int32 // global rank; Broadcast only
	Device    int32 // CPUDevice or a GPU's number
	Shape     tensor.Shape
	Prescale  float64
	Postscale float64
}

// NoSlot is the Slot of a Response that is not cached.
const NoSlot = ^uint32(0)

// Response tells every member to execute one tensor, or to fail it.
type Response struct {
	Type      RequestType
	Err       string // not empty: fail the tensor with PRECONDITION_ERROR and this text
	DType     tensor.DType
	ReduceOp  tensor.ReduceOp
	Name      string
	Root      int32
	Device    int32
	Shape     tensor.Shape // Allgather: the first dimension is the sum over the members
	FirstDims []int64      // Allgather: the first dimension of each member, in member order
	Prescale  float64
	Postscale float64
	// Slot and Gen name the cache slot under which this Response can be repeated;
	// NoSlot if it cannot. A slot that stood for another name stands for this one now.
	Slot uint32
	Gen  uint32
}
