package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Listener is one or several TCP listeners, on different addresses and one port, that act as one.
type Listener struct {
	parts    []*net.TCPListener
	accepted chan accepted
	closed   chan struct{}
	start    sync.Once
	end      sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

var _ net.Listener = (*Listener)(nil)

// ListenEverywhere listens on all of this host's addresses, on a port that the system
// chooses.
func ListenEverywhere() (*Listener, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	return newListener(l.(*net.TCPListener)), nil
}

// Listen listens on these addresses only, on one port that the system chooses.
func Listen(at ...netip.Addr) (*Listener, error) {
	// A port that is free at the first address may be taken at another.
	const attempts = 20
	var err error
	for range attempts {
		var l *Listener
		if l, err = listenOnce(at); err == nil {
			return l, nil
		}
		if len(at) == 1 {
			break
		}
	}
	return nil, err
}

func listenOnce(at []netip.Addr) (*Listener, error) {
	if len(at) == 0 {
		return nil, errors.New("no address to listen on")
	}
	var parts []*net.TCPListener
	port := uint16(0)
	for _, a := range at {
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
		if err != nil {
			for _, l := range parts {
				l.Close()
			}
			return nil, fmt.Errorf("on %v: %w", a, err)
		}
		parts = append(parts, l.(*net.TCPListener))
		port = uint16(l.Addr().(*net.TCPAddr).Port)
	}
	return newListener(parts...), nil
}

func newListener(parts ...*net.TCPListener) *Listener {
	return &Listener{parts: parts, accepted: make(chan accepted), closed: make(chan struct{})}
}

// Addr is the address of the first part.
func (l *Listener) Addr() net.Addr { return l.parts[0].Addr() }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	if len(l.parts) == 1 {
		return l.parts[0].Accept()
	}
	l.start.Do(func() {
		for _, p := range l.parts {
			guard.Go("a listener", func(err error) { l.give(accepted{nil, err}) }, func() { l.run(p) })
		}
	})
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// give hands a to Accept; it returns false after Close.
func (l *Listener) give(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.closed:
		return false
	}
}

// run accepts the connections of one part, until Close.
func (l *Listener) run(part *net.TCPListener) {
	for {
		conn, err := part.Accept()
		if !l.give(accepted{conn, err}) {
			if err == nil {
				conn.Close()
			}
			return
		}
	}
}

// Close implements net.Listener.
func (l *Listener) Close() (err error) {
	l.end.Do(func() {
		close(l.closed)
		for _, p := range l.parts {
			err = errors.Join(err, p.Close())
		}
	})
	return err
}

// Check says whether an Acceptor can use the listener.
func Check(l net.Listener) error {
	_, err := partsOf(l)
	return err
}

// Sockets are the listeners behind l.
func (l *Listener) Sockets() []*net.TCPListener { return l.parts }

// partsOf are the sockets behind a listener.
func partsOf(l net.Listener) ([]*net.TCPListener, error) {
	switch l := l.(type) {
	case *net.TCPListener:
		return []*net.TCPListener{l}, nil
	case *Listener:
		return l.parts, nil
	}
	return nil, fmt.Errorf("the listener is a %T", l)
}
