package cuda

import "errors"

// Stream is a handle of a stream: CUstream, and cudaStream_t. The zero Stream is the default stream of the context.
type Stream uintptr

// Event is a handle of an event: CUevent, and cudaEvent_t.
type Event uintptr

// Address is an address of device memory: CUdeviceptr.
type Address uintptr

// Device describes a device that this process sees.
type Device struct {
	Ordinal      int // its number in this process, which CUDA_VISIBLE_DEVICES decides
	Name         string
	UUID         string // "GPU-…": which device of the machine it is
	Bus          string // its address on the PCI bus
	Memory       uint64 // bytes
	Major, Minor int    // compute capability
}

// ErrOutOfMemory is among the causes of an error if the device's or the host's memory does not suffice.
var ErrOutOfMemory = errors.New("out of memory")

// ErrUnloading is among the causes of an error if the process ends, and CUDA is gone already.
var ErrUnloading = errors.New("CUDA is shutting down with the process")
