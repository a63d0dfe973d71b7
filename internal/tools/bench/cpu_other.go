//go:build !linux

package bench

import (
	"errors"
	"net"
)

// processorTime is unknown on this system.
func (c *contender) processorTime() (seconds float64) { return 0 }

// peerPid is unknown on this system.
func peerPid(net.Conn) (pid int, err error) { return 0, errors.ErrUnsupported }
