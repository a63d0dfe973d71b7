package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// writer writes at once as much as a socket has room for, on a connection that stays with Go's poller. Its user makes
// sure that nobody else writes meanwhile.
type writer struct {
	raw     syscall.RawConn
	scatter scatter
	written int
	attempt func(fd uintptr) bool // made once, since a closure is an allocation
}

// newWriter makes the writer of a connection that is held and stays so. It returns nil if the connection has ended.
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

// write writes head and then body, and returns how many bytes it has written. If an error keeps it from writing more,
// the next ordinary write meets that error, too.
func (w *writer) write(head, body []byte) int {
	w.scatter.set(head, body)
	w.written = 0
	if w.raw.Write(w.attempt) != nil {
		return 0
	}
	return w.written
}
