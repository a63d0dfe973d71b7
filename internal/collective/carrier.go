package collective

import "github.com/gorovod/gorovod/internal/tensor"

// Carrier is what a lane's operations run on: a Lane, or something else that can do
// the same, such as MPI. The methods are described at Lane.
type Carrier interface {
	AllreduceAs(w tensor.Wire, dt tensor.DType, op tensor.ReduceOp, in, out []byte, scale float64) Op
	AllreduceParts(dt tensor.DType, op tensor.ReduceOp, parts []Part, prescale, postscale float64) Op
	Adasum(dt tensor.DType, data []byte, segments []int, scale float64) Op
	Allgather(in, out []byte, counts []int64) Op
	Broadcast(root int, buf []byte) Op
	Alltoall(in []byte, sendBytes []int64, out []byte, recvBytes []int64) Op
	AlltoallCounts(send, received []int64) Op
	Reducescatter(dt tensor.DType, op tensor.ReduceOp, in, out []byte, counts []int64, scale float64) Op
	Barrier() Op

	TakesParts() bool
	OverShared() bool
	MayBeHierarchical() bool
	MayChooseForm() bool
	Tune(t Tuning)
	Moved() uint64

	// Polled reports that nobody rings this rank's bell for the operations: while one
	// is under way, its driver has to advance it over and over.
	Polled() bool
	// Close gives up this member's part, once no operation will be started any more. cause is why
	// the engine ends before its time, nil where a process set is removed or all leave in order. It
	// belongs to the driver. Not quiet: an operation under way could not be taken back, so that its
	// buffers may be written to at any time, and the process has to end.
	Close(cause error) (quiet bool)
}

// Polled reports false: transports ring.
func (l *Lane) Polled() bool { return false }

// Close does nothing: the transport, which is closed by its network, holds all there is.
func (l *Lane) Close(error) bool { return true }
