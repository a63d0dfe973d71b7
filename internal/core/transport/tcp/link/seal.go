package link

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
)

// Seal makes connections use TLS after their proof (auth.Seal). Their users read and write a socket of this process, so
// a deadline never cuts a TLS record:
//
//	user ── Conn, a socket of this process ── pump ── auth.Sealed ══ TCP
//
// That costs two more copies, the encryption, and a change of goroutines at each end.
// One Seal serves all connections of a network; nil seals none.
type Seal struct {
	Certificates auth.Certificates

	pumps sync.WaitGroup
}

// Wait returns when all data that was written before its connection was closed has been passed to TCP, or after limit.
func (s *Seal) Wait(limit time.Duration) {
	if s == nil {
		return
	}
	done := make(chan struct{})
	guard.Go("a wait for TLS", func(error) {}, func() {
		s.pumps.Wait()
		close(done)
	})
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// begin seals a connection that has proved itself. The handshake goes on over c.talk.
func (s *Seal) begin(c *Conn, key []byte, initiator bool) (err error) {
	if s == nil {
		return nil
	}
	c.sealed, err = s.Certificates.Seal(c, key, initiator)
	return err
}

// talk returns the connection for the handshake: with TLS if c is sealed.
func (c *Conn) talk() net.Conn {
	if c.sealed != nil {
		return c.sealed
	}
	return c
}

// cover puts a socket in front of a sealed connection, after the handshake. It owns c, also if it returns an error.
func (s *Seal) cover(c *Conn) (*Conn, error) {
	if c.sealed == nil {
		return c, nil
	}
	outer, inner, err := socketPair()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("a socket for TLS: %w", err)
	}
	out := newConn(outer, 0, c.track)
	out.wire = c
	below := newConn(inner, 0, c.track)
	var directions sync.WaitGroup
	directions.Add(2)
	s.pumps.Add(1)
	run := func(f func()) {
		guard.Go("TLS", func(error) { below.Close(); c.Close() }, func() {
			defer directions.Done()
			f()
		})
	}
	run(func() { c.pumpOut(below) })
	run(func() { c.pumpIn(below) })
	guard.Go("the end of TLS", func(error) {}, func() {
		directions.Wait()
		below.Close()
		c.Close()
		s.pumps.Done()
	})
	return out, nil
}

// pumpOut passes on the data that the user writes. When the user no longer needs the connection, it ends the
// connection.
func (c *Conn) pumpOut(below *Conn) {
	if _, err := copyAll(c.sealed, below); err != nil {
		c.Close()
		return
	}
	c.sealed.CloseWrite()
	below.awaitHangUp()
	c.Close()
}

// pumpIn passes on the data that comes. If the connection breaks, its user sees an end without a last word, as without
// TLS.
func (c *Conn) pumpIn(below *Conn) {
	if _, err := copyAll(below, c.sealed); err != nil {
		c.Close()
	}
	below.CloseWrite()
}

// copyAll is io.Copy with a buffer of a few records of TLS.
func copyAll(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
}

// awaitHangUp returns when the other end of a pair has been closed in both directions.
func (c *Conn) awaitHangUp() {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		return err != nil && err != unix.EINTR || n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
}

// socketPair are two connected sockets of this process.
func socketPair() (a, b *net.UnixConn, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		conn, fileErr := net.FileConn(file)
		file.Close()
		if fileErr != nil {
			err = fileErr
			continue
		}
		ends[i] = conn.(*net.UnixConn)
	}
	if err != nil {
		for _, e := range ends {
			if e != nil {
				e.Close()
			}
		}
		return nil, nil, err
	}
	return ends[0], ends[1], nil
}
