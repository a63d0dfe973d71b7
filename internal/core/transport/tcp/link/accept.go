package link

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// Acceptor is the accepting side. Set its fields before Start, and do not change them later.
type Acceptor struct {
	// Listener is a *Listener or a *net.TCPListener.
	Listener net.Listener
	Key      []byte
	// Track is called with each descriptor when it opens and before it closes, the listener's included.
	Track func(fd int, open bool)
	// Idle is pulse.Pulse's of all connections.
	Idle time.Duration
	// Limit is the most connections that may be unproved at once, see auth.Lobby.
	Limit int
	// Knocks gets the connections that fail the proof. Optional.
	Knocks *auth.Knocks
	// Seal makes the connections use TLS. Optional. It must be set on both ends or on none.
	Seal *Seal
	// Go runs f on a goroutine that the user waits for after Close. It returns false if it is too late for that.
	Go func(f func()) bool
	// Admit returns an error for a hello, received with a valid proof, that this end refuses. The other end gets the
	// error's text.
	Admit func(hello []byte) error
	// Take gets a connection that the other end has chosen. Things may have changed since Admit.
	Take func(hello []byte, c *Conn)

	proof time.Duration // in place of handshakeTimeout, in tests

	mu       sync.Mutex
	closed   bool
	done     chan struct{} // closed by Close
	lobby    *auth.Lobby
	welcomed []*Conn // proved, and about to hear, or have heard, that they are welcome
}

// Start begins to accept connections, on a goroutine of its own. That goroutine calls failed, at most once, if somebody
// else has closed the listener: then this end accepts no more connections.
func (a *Acceptor) Start(failed func(error)) {
	a.done = make(chan struct{})
	a.lobby = auth.NewLobby(a.Limit)
	a.trackListener(true)
	a.Go(func() { a.run(failed) })
}

// run takes connections until Close. failed is Start's.
func (a *Acceptor) run(failed func(error)) {
	for {
		raw, err := a.Listener.Accept()
		if err == nil {
			a.welcome(newConn(raw.(*net.TCPConn), a.Idle, a.Track))
			continue
		}
		if isClosed(a.done) {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			failed(fmt.Errorf("the listener was closed: %w", err))
			return
		}
		// Most likely there are no descriptors left; some may come free.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-a.done:
			return
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close closes the listener and the connections in the handshake, except those that have heard that they are welcome.
// The other end may already use such a connection, so it goes to Take if its answer comes within linger. Close does not
// wait. Take may be called until Go's goroutines have ended.
func (a *Acceptor) Close(linger time.Duration) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	for _, c := range a.welcomed {
		c.SetReadDeadline(time.Now().Add(linger))
	}
	a.mu.Unlock()
	close(a.done)
	a.trackListener(false)
	a.Listener.Close()
	a.lobby.Close()
}

// Unproven is the number of connections that have not proved themselves yet.
func (a *Acceptor) Unproven() int { return a.lobby.Len() }

func (a *Acceptor) trackListener(open bool) {
	parts, _ := partsOf(a.Listener)
	for _, p := range parts {
		if raw, err := p.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { a.Track(int(fd), open) })
		}
	}
}

func (a *Acceptor) welcome(c *Conn) {
	a.lobby.Enter(c)
	if !a.Go(func() { a.prove(c) }) {
		a.lobby.Leave(c)
		c.Close()
	}
}

// prove runs the handshake on an accepted connection. If the handshake fails, it closes the connection without a word
// to the other end, which may be a port scanner.
func (a *Acceptor) prove(c *Conn) {
	c.SetDeadline(time.Now().Add(cmp.Or(a.proof, handshakeTimeout)))
	hello, err := auth.Accept(c, a.Key)
	stayed := a.lobby.Leave(c)
	if err != nil && !isClosed(a.done) {
		a.Knocks.Note(c, err)
	}
	if err == nil && stayed {
		err = a.receive(c, hello)
		a.mu.Lock()
		a.welcomed = slices.DeleteFunc(a.welcomed, func(w *Conn) bool { return w == c })
		a.mu.Unlock()
		if err == nil {
			if c, err = a.Seal.cover(c); err == nil {
				a.Take(hello, c)
			}
			return
		}
	}
	c.Close()
}

// receive is the acceptor's part of the handshake after the proof. It returns when the dialler has chosen this
// connection. The dialler may have chosen it as soon as it hears that it is welcome, and uses it from then on. So this
// end waits for the answer, however busy the machine is, until the dialler closes the connection or answers. Were it to
// give up, the dialler would take this rank for lost.
func (a *Acceptor) receive(c *Conn, hello []byte) error {
	if err := a.Seal.begin(c, a.Key, false); err != nil {
		if errors.Is(err, auth.ErrCertificate) {
			a.Knocks.Note(c, err)
		}
		return err
	}
	if err := a.Admit(hello); err != nil {
		reason := err.Error()
		reason = reason[:min(len(reason), 255)]
		c.talk().Write(append([]byte{byte(len(reason))}, reason...))
		return err
	}
	c.SetDeadline(time.Now().Add(answerTimeout)) // before note, after which Close may shorten it
	if err := a.note(c); err != nil {
		return err
	}
	if _, err := c.talk().Write([]byte{0}); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(c.talk(), answer[:]); err != nil {
		return err
	}
	if answer[0] != begin {
		return fmt.Errorf("answer %#x to the verdict", answer[0])
	}
	return c.SetDeadline(time.Time{})
}

// note notes that c is about to hear that it is welcome.
func (a *Acceptor) note(c *Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return net.ErrClosed
	}
	a.welcomed = append(a.welcomed, c)
	return nil
}
