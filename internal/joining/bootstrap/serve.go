package bootstrap

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Serve starts a rendezvous in the process that will be rank 0, for a job of size ranks whose secret is key. It
// listens at the address host on a port that the system chooses, and returns the port. It serves until the process
// ends or calls Serve again. Any goroutine may call it. lookup reads the environment.
func (p *Process) Serve(host string, key []byte, size int, lookup observer.Lookup, log *slog.Logger) (port int,
	err error) {
	if size < 1 || len(key) == 0 {
		return 0, fmt.Errorf("rendezvous: %d ranks and a secret of %d bytes", size, len(key))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("rendezvous: %w", err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	p.serve(l, []string{net.JoinHostPort(host, strconv.Itoa(port))}, key, size, lookup, log)
	return port, nil
}

// serve is Serve on a listener, which it owns from then on. The ranks find it at addrs.
func (p *Process) serve(l net.Listener, addrs []string, key []byte, size int, lookup observer.Lookup,
	log *slog.Logger) {
	s := rendezvous.NewServer(key, size)
	s.Knocks = auth.NewKnocks(func(text string) { log.Warn(text) })
	s.ServedBy = "rank 0"
	s.Certificates = auth.CertificatesFrom(func(name string) string {
		v, _ := lookup(name)
		return v
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Close()
	}
	p.server = s
	s.Epoch = p.servers
	p.servers++
	p.show(s, size, addrs, lookup, log)
	guard.Go("the rendezvous", func(error) { s.Close() }, func() { s.Serve(p.track(l)) })
}

// show starts an observer, if somebody wants to see the job and there is none, and shows it the job that meets at s,
// which the ranks find at addrs. The caller holds mu.
func (p *Process) show(s *rendezvous.Server, size int, addrs []string, lookup observer.Lookup, log *slog.Logger) {
	variable := observer.Asked(lookup)
	if variable == "" {
		return
	}
	if p.observer == nil || p.observer.Ended() {
		var err error
		if p.observer, err = p.observe(lookup, log); err != nil {
			log.Warn(variable + " is set, but nothing shows the job: " + err.Error())
			return
		}
	}
	p.observer.Show(s, size, addrs)
}

func (p *Process) observe(lookup observer.Lookup, log *slog.Logger) (*observer.Observer, error) {
	own, _ := os.Executable()
	files := []string{own}
	if p.Library != nil {
		files = []string{p.Library(), own}
	}
	program, err := observer.Program(files...)
	if err != nil {
		return nil, err
	}
	return observer.Start(observer.Options{Lookup: lookup, Program: program, TrackFD: p.TrackFD, Log: log})
}

// Left tells who observes the job that this process leaves its world: see observer.Observer.Over.
func (p *Process) Left(failure string) {
	p.mu.Lock()
	o := p.observer
	p.mu.Unlock()
	if o != nil {
		o.Over(failure)
	}
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
