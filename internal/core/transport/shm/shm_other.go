//go:build !linux

// Package shm is the transport between ranks on one host that share memory. It
// needs Linux: elsewhere Open says so, and the ranks use TCP.
package shm

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// Config describes one rank's attachment; see the Linux version.
type Config struct {
	Rank, Size int
	Ranks      []int
	Key        []byte
	Job        string
	Generation uint64
	Timeout    time.Duration
	Cards      int
	BoardBytes int
	Alarm      bool
	Cores      int
	Staged     bool
	HugePages  bool
	Describe   func(rank int) string
	Died       func(rank, pid int, exit transport.Exit)
	TrackFD    func(fd int, open bool)
}

// Network does not exist on this system.
type Network struct{ transport.Network }

// Part does not exist on this system.
type Part struct {
	Shared transport.Shared
	Boards []*board.Board
}

// Ring does nothing.
func (*Part) Ring(int) {}

// OpenPart always fails.
func (*Network) OpenPart(int, []int, ...board.Config) (*Part, error) {
	return nil, errUnsupported
}

// CanCopy is false.
func (*Network) CanCopy() bool { return false }

// Verify finds nothing.
func (*Network) Verify() error { return nil }

var errUnsupported = fmt.Errorf("shared memory between ranks is not supported on %s", runtime.GOOS)

// MaxLanes is that of Linux.
const MaxLanes = 32

// BoardBytes is not needed on this system.
func BoardBytes(...board.Config) int { return 0 }

// Open always fails.
func Open(context.Context, Config) (*Network, error) {
	return nil, errUnsupported
}
