// Package link makes connections between the ranks of a job, and has both ends prove themselves (package auth) before
// they read anything else. The user of a connection decides what the connection then carries.
//
//  1. The dialler sends hello: a few bytes that say what the connection will carry. They are part of the proof.
//  2. After the proof the acceptor sends its verdict: one byte, the length of its
//     reason to refuse, then the reason. 0 means welcome.
//  3. The dialler may try several addresses of a rank at once. It sends begin on the
//     one connection that it will use. The acceptor forgets the others.
package link

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/pulse"
)

const begin byte = 0x42

// handshakeTimeout is how long a connection may take to prove itself.
const handshakeTimeout = 10 * time.Second

// answerTimeout is how long the accepting side waits for the answer of a dialler that has proved itself.
const answerTimeout = 5 * time.Minute

// Errors wrap ErrRefused if the other end has refused: trying again will not help.
var ErrRefused = errors.New("refused")

// Stream is the socket of a Conn: a TCP connection, or a socket of this process in front of one (Seal).
type Stream interface {
	net.Conn
	CloseWrite() error
	syscall.Conn
}

// Conn is a connection whose descriptor is tracked.
type Conn struct {
	Stream
	sealed *auth.Sealed // the TLS over it, during the handshake and for the pump
	wire   *Conn        // the TCP connection behind a Seal's socket; nil if this is one
	fd     int          // -1 if unknown
	track  func(fd int, open bool)
	once   sync.Once

	pulsing sync.Mutex // guards pulse
	pulse   pulse.Pulse
}

// newConn makes a Conn of a socket. For idle, see pulse.Pulse.
func newConn(c Stream, idle time.Duration, track func(fd int, open bool)) *Conn {
	out := &Conn{Stream: c, fd: -1, track: track, pulse: pulse.Pulse{Idle: idle}}
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { out.fd = int(fd) })
		out.track(out.fd, true)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
		tcp.SetKeepAlive(false) // a rank that waits calls Beat
		out.control(out.pulse.Start)
	}
	return out
}

// Any goroutine may call Close, any number of times.
func (c *Conn) Close() error {
	c.once.Do(func() {
		if c.fd >= 0 {
			// Before the number can belong to another file.
			c.track(c.fd, false)
		}
		c.Stream.Close()
	})
	return nil
}

// RemoteAddr is the remote address of the TCP connection.
func (c *Conn) RemoteAddr() net.Addr {
	if c.wire != nil {
		return c.wire.RemoteAddr()
	}
	return c.Stream.RemoteAddr()
}

// IsSealed reports that the connection is a socket in front of TLS. Detaching it would not pay, because TLS costs much
// more time.
func (c *Conn) IsSealed() bool { return c.wire != nil }
