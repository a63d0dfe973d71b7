//go:build !linux

package flight

import (
	"errors"
	"net"
)

var errUnsupported = errors.New("ranks can be asked on Linux only; GOROVOD_DUMP_DIR works everywhere")

// Listen is implemented on Linux only.
func Listen() (*net.UnixListener, error) { return nil, errUnsupported }

// Serve is implemented on Linux only.
func Serve(*net.UnixListener, func() *Dump) {}

// Ask is implemented on Linux only.
func Ask(int) ([]*Dump, []Silent, error) { return nil, nil, errUnsupported }

// Running is implemented on Linux only.
func Running() ([][]*Dump, []Silent, error) { return nil, nil, errUnsupported }

// Launcher is implemented on Linux only.
func Launcher(int) int { return 0 }
