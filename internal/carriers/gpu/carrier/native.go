//go:build cgo && linux

package carrier

import (
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// Native is the System of a process with CUDA's driver and NCCL.
type Native struct{}

// Context implements System.
func (Native) Context(device int) (Context, error) {
	d, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	c, err := d.Context(device)
	if err != nil {
		return nil, err // not a nil *cuda.Context
	}
	return c, nil
}

// Device implements System.
func (Native) Device(ordinal int) (cuda.Device, error) {
	d, err := cuda.Open()
	if err != nil {
		return cuda.Device{}, err
	}
	return d.Device(ordinal)
}

// Library implements System.
func (Native) Library() (Library, error) {
	d, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	l, err := nccl.Open()
	if err != nil {
		return nil, err
	}
	return library{l}, l.Runs(d)
}

// Underway implements System.
func (Native) Underway() (string, time.Duration) { return cuda.Underway() }

type library struct{ *nccl.Library }

// NewComm implements Library.
func (l library) NewComm(c Context, size int, id nccl.UniqueID, rank int) (Comm, error) {
	context, ok := c.(*cuda.Context)
	if !ok {
		return nil, fmt.Errorf("a context that is not CUDA's")
	}
	comm, err := l.Library.NewComm(context, size, id, rank)
	if err != nil {
		return nil, err
	}
	return comm, nil
}
