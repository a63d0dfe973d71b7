package carrier

import (
	"unsafe"

	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/gpu/nccl"
)

// System is what a process has of CUDA and NCCL.
type System interface {
	// Context is the context of a device. The first call loads CUDA.
	Context(device int) (Context, error)
	// Device describes a device.
	Device(ordinal int) (cuda.Device, error)
	// Library finds NCCL.
	Library() (Library, error)
}

// Context is what is needed of a cuda.Context.
type Context interface {
	NewStream() (cuda.Stream, error)
	FreeStream(s cuda.Stream) error
	Capturing(s cuda.Stream) (bool, error)
	NewEvent() (cuda.Event, error)
	FreeEvent(e cuda.Event) error
	Record(e cuda.Event, s cuda.Stream) error
	Reached(e cuda.Event) (bool, error)
	Wait(s cuda.Stream, e cuda.Event) error
	Alloc(size int) (cuda.Address, error)
	Free(a cuda.Address) error
	AllocHost(size int) (unsafe.Pointer, error)
	FreeHost(p unsafe.Pointer) error
	Copy(to, from cuda.Address, size int, s cuda.Stream) error
	CopyFromHost(to cuda.Address, from unsafe.Pointer, size int, s cuda.Stream) error
	CopyToHost(to unsafe.Pointer, from cuda.Address, size int, s cuda.Stream) error
	Zero(a cuda.Address, size int, s cuda.Stream) error
}

// Library is what is needed of an nccl.Library.
type Library interface {
	Version() int
	Has(t nccl.DType) bool
	SharesDevices() bool
	NewUniqueID() (nccl.UniqueID, error)
	NewComm(c Context, size int, id nccl.UniqueID, rank int) (Comm, error)
}

// Comm is what is needed of an nccl.Comm.
type Comm interface {
	Ready() (bool, error)
	Advance(p *nccl.Program) (issued bool, err error)
	NewScaledSum(t nccl.DType, factor []byte) (nccl.ReduceOp, error)
	FreeScaledSum(op nccl.ReduceOp) error
	Finalize() error
	Destroy() error
	Abort() error
}

// addressOf is where p is on a device; 0 for nothing.
func addressOf(p []byte) uintptr {
	if len(p) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))
}

// memoryAt is memory of a device as the engine knows it: only its address means something.
func memoryAt(a cuda.Address, size int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), size)
}
