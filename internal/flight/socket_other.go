//go:build !linux

package flight

import (
	"errors"
	"net"
)

var errUnsupported = errors.New("ranks can be asked on Linux only; GOROVOD_DUMP_DIR works everywhere")

// Listen is for Linux.
func Listen() (*net.UnixListener, error) { return nil, errUnsupported }

// Serve is for Linux.
func Serve(*net.UnixListener, func() *Dump) {}

// Ask is for Linux.
func Ask(int) ([]*Dump, []Silent, error) { return nil, nil, errUnsupported }

// Running is for Linux.
func Running() ([][]*Dump, []Silent, error) { return nil, nil, errUnsupported }

// Launcher is for Linux.
func Launcher(int) int { return 0 }
