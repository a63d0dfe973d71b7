//go:build !cgo || !linux

package mpi

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/collective"
)

// ErrUnavailable says why this program has no MPI.
var ErrUnavailable = errors.New("this program was built without cgo, by which MPI's library is called: build it on " +
	"Linux with CGO_ENABLED=1 and a C compiler, or do not ask for MPI")

// Library would be a libmpi. There is none, because Load fails.
type Library struct{}

// InUse is false: without cgo there is no libmpi in a process.
func InUse() bool { return false }

// Load fails.
func Load(string) (*Library, error) { return nil, ErrUnavailable }

// Version is never called, and neither are the methods below.
func (l *Library) Version() string { return "" }

func (l *Library) Init(single bool) error { return ErrUnavailable }

func (l *Library) ThreadsSupported() bool { return false }

func (l *Library) Err() error { return ErrUnavailable }

func (l *Library) Finalize() error { return nil }

func (l *Library) FinalizeAtExit(hung func(error)) {}

func (l *Library) World() uintptr { return 0 }

func (l *Library) HandleAt(array unsafe.Pointer, i int) uintptr { return 0 }

func (l *Library) HandleOf(argument uintptr) uintptr { return 0 }

func (l *Library) Duplicate(ctx context.Context, handle uintptr) (*Communicator, error) {
	return nil, ErrUnavailable
}

func (l *Library) Subset(ctx context.Context, handle uintptr, ranks []int) (*Communicator, error) {
	return nil, ErrUnavailable
}

// Communicator would be a group of processes.
type Communicator struct{}

func (c *Communicator) Rank() int { return 0 }

func (c *Communicator) Size() int { return 0 }

func (c *Communicator) Ranks(handle uintptr) ([]int, error) { return nil, ErrUnavailable }

func (c *Communicator) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	return nil, ErrUnavailable
}

func (c *Communicator) OpenLane(ctx context.Context, tag int, ranks []int, o collective.Options) (collective.Carrier,
	error) {
	return nil, ErrUnavailable
}

func (c *Communicator) Free() {}

func (c *Communicator) Hung(ctx context.Context, limit time.Duration) string { return "" }

// SetLimit does nothing.
func SetLimit(int) {}
