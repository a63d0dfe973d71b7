package process

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// serving is the rendezvous that this process offers to a job that no launcher of
// ours has started. It outlives Shutdown: another Init of the job meets there.
var serving struct {
	sync.Mutex
	server *rendezvous.Server
}

// Serve starts a rendezvous, in the process that will be rank 0, for a job of size
// ranks whose secret is key, and returns the port, chosen by the system, on the address host. It ends with the
// process, or with the next call.
func Serve(host string, key []byte, size int) (port int, err error) {
	if size < 1 || len(key) == 0 {
		return 0, fmt.Errorf("rendezvous: %d ranks and a secret of %d bytes", size, len(key))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("rendezvous: %w", err)
	}
	serveOn(l, key, size, slog.New(&logHandler{out: os.Stderr, level: slog.LevelWarn}))
	return l.Addr().(*net.TCPAddr).Port, nil
}

// serveOn is Serve on a listener, which it takes over.
func serveOn(l net.Listener, key []byte, size int, log *slog.Logger) {
	s := rendezvous.NewServer(key, size)
	s.Knocks = auth.NewKnocks(func(text string) { log.Warn(text) })
	s.ServedBy = "rank 0"
	serving.Lock()
	defer serving.Unlock()
	if serving.server != nil {
		serving.server.Close()
	}
	serving.server = s
	guard.Go("the rendezvous", func(error) { s.Close() }, func() { s.Serve(track(l)) })
}

// trackedListener tells TrackFD of the descriptors behind a rendezvous, so that a
// forked child does not keep the port, or the ranks' connections, open.
type trackedListener struct {
	net.Listener
	fds []int
}

func track(l net.Listener) net.Listener {
	t := &trackedListener{Listener: l}
	if several, ok := l.(*link.Listener); ok {
		for _, s := range several.Sockets() {
			t.fds = append(t.fds, opened(s))
		}
	} else {
		t.fds = append(t.fds, opened(l))
	}
	return t
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trackedConn{c, opened(c), sync.Once{}}, nil
}

func (l *trackedListener) Close() error {
	for _, fd := range l.fds {
		closing(fd)
	}
	return l.Listener.Close()
}

type trackedConn struct {
	net.Conn
	fd   int
	once sync.Once // Close may be called twice; the number may be another's by then
}

func (c *trackedConn) Close() error {
	c.once.Do(func() { closing(c.fd) })
	return c.Conn.Close()
}

// opened tells TrackFD of the descriptor of c, and returns it; -1 if it has none.
func opened(c any) int {
	fd := -1
	if s, ok := c.(syscall.Conn); ok && TrackFD != nil {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(n uintptr) { fd = int(n) })
		}
	}
	if fd >= 0 {
		TrackFD(fd, true)
	}
	return fd
}

func closing(fd int) {
	if fd >= 0 && TrackFD != nil {
		TrackFD(fd, false)
	}
}
