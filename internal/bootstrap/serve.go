package bootstrap

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// Serve starts a rendezvous in the process that will be rank 0, for a job of size ranks whose secret is key. It
// listens at the address host on a port that the system chooses, and returns the port. It serves until the process
// ends or calls Serve again. Any goroutine may call it.
func (p *Process) Serve(host string, key []byte, size int, log *slog.Logger) (port int, err error) {
	if size < 1 || len(key) == 0 {
		return 0, fmt.Errorf("rendezvous: %d ranks and a secret of %d bytes", size, len(key))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("rendezvous: %w", err)
	}
	p.serve(l, key, size, log)
	return l.Addr().(*net.TCPAddr).Port, nil
}

// serve is Serve on a listener, which it owns from then on.
func (p *Process) serve(l net.Listener, key []byte, size int, log *slog.Logger) {
	s := rendezvous.NewServer(key, size)
	s.Knocks = auth.NewKnocks(func(text string) { log.Warn(text) })
	s.ServedBy = "rank 0"
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Close()
	}
	p.server = s
	guard.Go("the rendezvous", func(error) { s.Close() }, func() { s.Serve(p.track(l)) })
}

// trackedListener reports the descriptors behind a rendezvous to TrackFD, so that a forked child keeps neither the
// port nor the ranks' connections open.
type trackedListener struct {
	net.Listener
	fds   []int
	track descriptors
}

// descriptors is called with the descriptors that a forked child must close. nil ignores them.
type descriptors func(fd int, open bool)

func (p *Process) track(l net.Listener) net.Listener {
	t := &trackedListener{Listener: l, track: p.TrackFD}
	if several, ok := l.(*link.Listener); ok {
		for _, s := range several.Sockets() {
			t.fds = append(t.fds, t.track.opened(s))
		}
	} else {
		t.fds = append(t.fds, t.track.opened(l))
	}
	return t
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trackedConn{c, l.track.opened(c), l.track, sync.Once{}}, nil
}

func (l *trackedListener) Close() error {
	for _, fd := range l.fds {
		l.track.closing(fd)
	}
	return l.Listener.Close()
}

type trackedConn struct {
	net.Conn
	fd    int
	track descriptors
	once  sync.Once // Close may be called twice; by then the number may belong to another file
}

func (c *trackedConn) Close() error {
	c.once.Do(func() { c.track.closing(c.fd) })
	return c.Conn.Close()
}

// opened reports and returns the descriptor of c; -1 if it has none.
func (track descriptors) opened(c any) int {
	fd := -1
	if s, ok := c.(syscall.Conn); ok && track != nil {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(n uintptr) { fd = int(n) })
		}
	}
	if fd >= 0 {
		track(fd, true)
	}
	return fd
}

func (track descriptors) closing(fd int) {
	if fd >= 0 && track != nil {
		track(fd, false)
	}
}
