//go:build !linux

// Package shm is the transport between ranks on one host that share memory. It
// needs Linux: elsewhere Open says so, and the ranks use TCP.
package shm

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/gorovod/gorovod/internal/transport"
)

// Config describes one rank's attachment; see the Linux version.
type Config struct {
	Rank, Size int
	Key        []byte
	Job        string
	Generation uint64
	Timeout    time.Duration
	Slots      int
	Cores      int
	Died       func(rank int, pid int)
	TrackFD    func(fd int, open bool)
}

// Network is never made on this system.
type Network struct{ transport.Network }

// Open always fails.
func Open(context.Context, Config) (*Network, error) {
	return nil, fmt.Errorf("shared memory between ranks is not supported on %s", runtime.GOOS)
}
