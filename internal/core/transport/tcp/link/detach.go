package link

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/pulse"
)

// leastDescriptor leaves out those of stdout and stderr, which may be closed: a broken connection there would end the
// process, see os/signal.
const leastDescriptor = 3

// Detach takes the connection away from Go's runtime: c is closed, and the caller owns fd, which is tracked and does
// not block. Attach makes a Conn of fd again. Detach fails if the process can open no more descriptors.
func (c *Conn) Detach() (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if controlErr := raw.Control(
		func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, leastDescriptor) }); controlErr != nil {
		return -1, controlErr
	}
	if err != nil {
		return -1, err
	}
	c.track(fd, true)
	c.Close()
	return fd, nil
}

// Attach makes a Conn of a descriptor from Detach, between the addresses local and remote. For idle, see pulse.Pulse.
// Attach owns fd, also if it returns an error. It opens no descriptor, so that a connection with data on it is not lost
// where the process can open no more.
func Attach(fd int, local, remote net.Addr, idle time.Duration, track func(fd int, open bool)) (*Conn, error) {
	s := attached{os.NewFile(uintptr(fd), fmt.Sprintf("tcp %v->%v", local, remote)), local, remote}
	if err := s.SetDeadline(time.Time{}); err != nil {
		track(fd, false)
		s.Close()
		return nil, fmt.Errorf("the poller of Go does not take the connection: %w", err)
	}
	return &Conn{Stream: s, fd: fd, track: track, pulse: pulse.Pulse{Idle: idle}}, nil
}

// attached is a TCP connection whose descriptor was detached. The net package would make it of a second descriptor.
type attached struct {
	*os.File
	local, remote net.Addr
}

var _ Stream = attached{}

func (a attached) LocalAddr() net.Addr  { return a.local }
func (a attached) RemoteAddr() net.Addr { return a.remote }

func (a attached) CloseWrite() error {
	raw, err := a.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	return os.NewSyscallError("shutdown", failed)
}
