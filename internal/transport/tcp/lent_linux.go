package tcp

import (
	"errors"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errNotLent says that the connection has been taken back.
var errNotLent = errors.New("the connection has been taken back")

// scatter is what one system call reads or writes: a rest of a header, and of a
// payload. It belongs to who calls transmit or receive, so that neither
// allocates.
type scatter struct {
	message unix.Msghdr
	parts   [2]unix.Iovec
}

// set prepares for head and body; either may be empty, not both.
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

// transmit writes what can be written now of head and then body. It returns 0
// where that is nothing.
func (c *conn) transmit(s *scatter, head, body []byte) (int, error) {
	s.set(head, body)
	n, err := c.call(unix.SYS_SENDMSG, s, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err == errNothing {
		err = nil
	}
	return n, err
}

// receive reads what has come into head and then body. It returns 0 where that
// is nothing, and io.EOF at the end.
func (c *conn) receive(s *scatter, head, body []byte) (int, error) {
	s.set(head, body)
	n, err := c.call(unix.SYS_RECVMSG, s, unix.MSG_DONTWAIT)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err == errNothing {
		err = nil
	}
	return n, err
}

var errNothing = errors.New("nothing can be done now")

// call makes one system call on a lent connection.
func (c *conn) call(number uintptr, s *scatter, flags uintptr) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return 0, errNotLent
	}
	return s.call(number, uintptr(c.fd), flags)
}

// call makes one system call. It is a raw one: it never blocks, and what it may copy
// takes the kernel well below a millisecond.
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

// writer writes to a connection that the runtime keeps what can be written at
// once. Its user sees to it that nobody else writes meanwhile.
type writer struct {
	raw     syscall.RawConn
	scatter scatter
	written int
	attempt func(fd uintptr) bool // made once, since a closure is an allocation
}

// newWriter takes c over from the driver. Nil: there is no connection any more.
func newWriter(c *conn) *writer {
	l, err := c.takeBack()
	if err != nil {
		return nil
	}
	w := &writer{}
	if w.raw, err = l.SyscallConn(); err != nil {
		return nil
	}
	w.attempt = func(fd uintptr) bool {
		w.written, _ = w.scatter.call(unix.SYS_SENDMSG, fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	}
	return w
}

// write returns how many bytes of head and then body it has written. Where an error
// keeps it from writing more, the next ordinary write meets that, too.
func (w *writer) write(head, body []byte) int {
	w.scatter.set(head, body)
	w.written = 0
	if w.raw.Write(w.attempt) != nil {
		return 0
	}
	return w.written
}
