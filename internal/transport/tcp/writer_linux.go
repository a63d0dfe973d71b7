package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// writer writes to a connection that the runtime keeps what can be written at
// once. Its user sees to it that nobody else writes meanwhile.
type writer struct {
	raw     syscall.RawConn
	scatter scatter
	written int
	attempt func(fd uintptr) bool // made once, since a closure is an allocation
}

// newWriter is for a connection that is held and stays so. Nil: there is no connection any more.
func newWriter(c *conn) *writer {
	l, err := c.hold()
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
