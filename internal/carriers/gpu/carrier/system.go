package carrier

import (
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// System is the CUDA and the NCCL of a process.
type System interface {
	// Context returns the context of a device. The first call loads CUDA.
	Context(device int) (Context, error)
	// Device describes a device.
	Device(ordinal int) (cuda.Device, error)
	// Library finds NCCL.
	Library() (Library, error)
	// Underway names the oldest call that a Context, Device or Library of this process is in, with its file, and says
	// for how long; "" if that is not known. It does not wait for them.
	Underway() (call string, since time.Duration)
}

// Context has the methods of a cuda.Context that this package needs.
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

// Library has the methods of an nccl.Library that this package needs.
type Library interface {
	Version() int
	Has(t nccl.DType) bool
	SharesDevices() bool
	NewUniqueID() (nccl.UniqueID, error)
	NewComm(c Context, size int, id nccl.UniqueID, rank int) (Comm, error)
}

// Comm has the methods of an nccl.Comm that this package needs.
type Comm interface {
	Ready() (bool, error)
	Advance(p *nccl.Program) (issued bool, err error)
	NewScaledSum(t nccl.DType, factor []byte) (nccl.ReduceOp, error)
	FreeScaledSum(op nccl.ReduceOp) error
	Finalize() error
	Destroy() error
	Abort() error
}

// addressOf returns the address of p on a device, or 0 if p is empty.
func addressOf(p []byte) uintptr {
	if len(p) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))
}

// memoryAt returns memory of a device as the engine knows it: a slice of which only the address and the length mean
// something.
func memoryAt(a cuda.Address, size int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), size)
}
