package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
)

// Acceptor is the accepting side. Its fields are set before Run and not changed.
type Acceptor struct {
	// Listener is a *Listener or a *net.TCPListener.
	Listener net.Listener
	Key      []byte
	// Track is told of each descriptor when it opens and before it closes, the
	// listener's included.
	Track func(fd int, open bool)
	// Limit is how many connections may be in the handshake at once. The oldest
	// gives way: a handshake takes milliseconds, so the oldest is the least likely to
	// succeed, and a rank that it hits nevertheless tries again.
	Limit int
	// Go runs f on a goroutine that the user waits for after Close; false if it is
	// too late for that.
	Go func(f func()) bool
	// Admit judges the hello of who has proved itself. The other end is told of the
	// error.
	Admit func(hello []byte) error
	// Take is given a connection that the other end has chosen. Something may have
	// changed since Admit.
	Take func(hello []byte, c *Conn)

	mu       sync.Mutex
	closed   bool
	done     chan struct{} // closed by Close
	unproven []*Conn       // in the handshake, oldest first
	welcomed []*Conn       // of these, those that have been told so
}

// Start begins to accept connections, on a goroutine of its own.
func (a *Acceptor) Start(failed func(error)) {
	a.done = make(chan struct{})
	a.trackListener(true)
	a.Go(func() { a.run(failed) })
}

// run takes connections until Close. failed learns of a listener that was closed
// by somebody else.
func (a *Acceptor) run(failed func(error)) {
	for {
		raw, err := a.Listener.Accept()
		if err == nil {
			a.welcome(newConn(raw.(*net.TCPConn), a.Track))
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

// Close closes the listener and what is in the handshake, but for those who have been
// told that they are welcome: they may have begun to use the connection, and are given
// to Take if they answer within linger. It waits for nothing, and Take may be called
// until Go's goroutines have ended.
func (a *Acceptor) Close(linger time.Duration) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	var strangers []*Conn
	for _, c := range a.unproven {
		if slices.Contains(a.welcomed, c) {
			c.SetReadDeadline(time.Now().Add(linger))
		} else {
			strangers = append(strangers, c)
		}
	}
	a.unproven = slices.Clone(a.welcomed)
	a.mu.Unlock()
	close(a.done)
	a.trackListener(false)
	a.Listener.Close()
	for _, c := range strangers {
		c.Close()
	}
}

// Unproven is how many connections are in the handshake.
func (a *Acceptor) Unproven() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unproven)
}

func (a *Acceptor) trackListener(open bool) {
	parts, _ := partsOf(a.Listener)
	for _, p := range parts {
		if raw, err := p.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { a.Track(int(fd), open) })
		}
	}
}

func (a *Acceptor) welcome(c *Conn) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		c.Close()
		return
	}
	if len(a.unproven) >= a.Limit {
		a.unproven[0].Close()
		a.unproven = slices.Delete(a.unproven, 0, 1)
	}
	a.unproven = append(a.unproven, c)
	a.mu.Unlock()
	if !a.Go(func() { a.prove(c) }) {
		c.Close()
	}
}

// prove runs the handshake with a connection that came in. One that fails it is
// closed without a word to anybody: it may be a port scanner.
func (a *Acceptor) prove(c *Conn) {
	hello, err := a.respond(c)
	a.mu.Lock()
	if i := slices.Index(a.unproven, c); i >= 0 {
		a.unproven = slices.Delete(a.unproven, i, i+1)
	} else if err == nil {
		err = errors.New("gave way")
	}
	a.welcomed = slices.DeleteFunc(a.welcomed, func(w *Conn) bool { return w == c })
	a.mu.Unlock()
	if err != nil {
		c.Close()
		return
	}
	a.Take(hello, c)
}

// respond is the acceptor's part of the handshake. It returns when the dialler
// has chosen this connection.
func (a *Acceptor) respond(c *Conn) (hello []byte, err error) {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	if hello, err = auth.Accept(c, a.Key); err != nil {
		return nil, err
	}
	if err := a.Admit(hello); err != nil {
		reason := err.Error()
		reason = reason[:min(len(reason), 255)]
		c.Write(append([]byte{byte(len(reason))}, reason...))
		return nil, err
	}
	if err := a.note(c); err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{0}); err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return nil, err
	}
	if answer[0] != begin {
		return nil, fmt.Errorf("answer %#x to the verdict", answer[0])
	}
	return hello, c.SetDeadline(time.Time{})
}

// note notes that c is about to be told that it is welcome.
func (a *Acceptor) note(c *Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return net.ErrClosed
	}
	a.welcomed = append(a.welcomed, c)
	return nil
}
