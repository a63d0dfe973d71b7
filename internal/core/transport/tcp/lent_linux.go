package tcp

import (
	"errors"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scatter describes what one system call reads or writes: the rest of a header, and of a payload. The caller of
// transmit or receive owns it, so that neither allocates.
type scatter struct {
	message unix.Msghdr
	parts   [2]unix.Iovec
}

// set prepares for head and body; one of them may be empty.
func (s *scatter) set(head, body []byte) {
	s.message = unix.Msghdr{}
	n := 0
	for _, p := range [2][]byte{head, body} {
		if len(p) > 0 {
			s.parts[n].Base = unsafe.SliceData(p)
			s.parts[n].SetLen(len(p))
			n++
		}
	}
	s.message.Iov = &s.parts[0]
	s.message.SetIovlen(n)
}

// transmit writes as much of head and then body as it can now. It returns 0 if the socket has no room. The connection
// is lent, and its half's lock is held.
func (c *conn) transmit(s *scatter, head, body []byte) (int, error) {
	s.set(head, body)
	n, err := s.call(unix.SYS_SENDMSG, uintptr(c.fd), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err == errNothing {
		err = nil
	}
	return n, err
}

// receive reads the data that has come into head and then body. It returns 0 if there is none, and io.EOF at the end.
// The connection is lent, and its half's lock is held.
func (c *conn) receive(s *scatter, head, body []byte) (int, error) {
	s.set(head, body)
	n, err := s.call(unix.SYS_RECVMSG, uintptr(c.fd), unix.MSG_DONTWAIT)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err == errNothing {
		err = nil
	}
	return n, err
}

const (
	// muchBytes is the shortest rest of a message for which a driver sleeps rather than polls. Over a link of 10 Gbit/s
	// it takes 50 us, about ten times what a sleep costs.
	muchBytes = 64 << 10
	// wakeBytes is how much of a longer rest wakes the driver. While it reads that, the next part arrives.
	wakeBytes = 128 << 10
)

// await asks the kernel to wake the driver when a good part of the next n bytes has come, and reports whether n is
// much. The connection is lent, and its half's lock is held.
func (c *conn) await(n int) (much bool) {
	least := 1
	switch {
	case n > wakeBytes+muchBytes:
		least = wakeBytes
	case n >= muchBytes:
		least = n
	}
	if c.least != least && (least > 1 || c.least > 1) {
		// If more has come meanwhile, the kernel wakes the driver at once.
		if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, least) != nil {
			return false
		}
		c.least = least
	}
	return least > 1
}

// awaitAny lets the kernel wake readers for a single byte again. The half's lock is held.
func (c *conn) awaitAny() { c.await(1) }

var errNothing = errors.New("nothing can be done now")

// call makes one raw system call. It never blocks, and the kernel copies its data in well below a millisecond.
func (s *scatter) call(number, fd, flags uintptr) (int, error) {
	for {
		n, _, e := unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(&s.message)), flags)
		switch e {
		case 0:
			return int(n), nil
		case syscall.EAGAIN:
			return 0, errNothing
		case syscall.EINTR:
		default:
			return 0, e
		}
	}
}
