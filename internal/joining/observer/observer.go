// Package observer shows a job that no horovodrun has started. Rank 0 serves the rendezvous of such a job, and so gets
// the figures of all ranks, but what shows them is part of the command gorovod alone. So rank 0's process starts this
// command, as the observer, and passes the figures on:
//
//	ranks ──figures──▶ rendezvous.Server in rank 0 ──News──▶ gorovod observe ──▶ readers
//	      ◀───tell────                             ◀──Wish──
//
// The observer is no child of rank 0's process, so that a program that waits for all its children does not wait for
// it. It ends when that process has ended: then its end of the socket is closed. Nothing here blocks the job: what is
// under way to an observer that does not read is one answer of each rank, since ranks are asked only when the observer
// has read the answers before.
package observer

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Subcommand is the observer's, of the command gorovod.
const Subcommand = "observe"

// asking are the variables that ask for an observer.
var asking = []string{"GOROVOD_METRICS", "GOROVOD_DASHBOARD"}

// passed are the variables that the observer gets. It gets no others, so that nothing takes it for a rank.
var passed = append([]string{"GOROVOD_METRICS_TOKEN", "GOROVOD_METRICS_TOKEN_FILE", "GOROVOD_METRICS_CERT",
	"GOROVOD_METRICS_KEY", "GOROVOD_TLS", auth.CertVariable, "GOROVOD_LOG_FORMAT", "PATH", "HOME", "TZ"}, asking...)

// Lookup returns the value of a variable, and whether it is set.
type Lookup func(name string) (string, bool)

// Asked returns the variable that asks for an observer; empty if none does.
func Asked(lookup Lookup) string {
	for _, name := range asking {
		if v, _ := lookup(name); v != "" {
			return name
		}
	}
	return ""
}

// Options is the input of Start.
type Options struct {
	// Lookup reads the environment.
	Lookup Lookup
	// Program is the file of the command gorovod.
	Program string
	// TrackFD, if not nil, is called with the socket's descriptor, so that a forked child can close its copy.
	TrackFD func(fd int, open bool)
	// Log gets what goes wrong. The observer itself writes to this process's stderr.
	Log *slog.Logger
}

// Observer is the serving process's end. Its methods are safe on any goroutine, and do not wait for the observer,
// except Over.
type Observer struct {
	o    Options
	conn net.Conn
	fd   int
	wake chan struct{} // capacity 1: there is something to write, or the end

	mu      sync.Mutex
	server  *rendezvous.Server
	queue   [][]byte
	writing bool
	quiet   chan struct{} // closed when the queue has been written; nil: nobody waits for that
	ended   bool
}

// Start starts an observer.
func Start(o Options) (*Observer, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	c := &exec.Cmd{Path: o.Program, Args: []string{"gorovod", Subcommand}, Stdin: theirs, Stderr: os.Stderr,
		SysProcAttr: apart()}
	for _, name := range passed {
		if v, ok := o.Lookup(name); ok {
			c.Env = append(c.Env, name+"="+v)
		}
	}
	if c.Env == nil {
		c.Env = []string{}
	}
	err = c.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, err
	}
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	b := &Observer{o: o, conn: conn, fd: descriptor(conn), wake: make(chan struct{}, 1)}
	if b.fd >= 0 && o.TrackFD != nil {
		o.TrackFD(b.fd, true)
	}
	// It starts the observer, and ends at once. The program may have taken its exit status already.
	guard.Go("the start of the observer", b.failed, func() { c.Wait() })
	guard.Go("the news for the observer", b.failed, b.write)
	guard.Go("the observer's wishes", b.failed, b.read)
	b.send(&News{Hello: Shape()})
	return b, nil
}

// Show lets the observer see the ranks that will meet at s, a world of size ranks. peers are the addresses of s, as the
// ranks know them. It is called before s serves. Each server that one observer sees has another Epoch.
func (b *Observer) Show(s *rendezvous.Server, size int, peers []string) {
	s.Figures = func(rank int, generation uint64, host string, value []byte) {
		b.send(&News{Figures: &Figures{Rank: rank, Generation: generation, Host: host, Value: value}})
	}
	s.Judged = func(generation uint64, v rendezvous.Verdict) {
		b.send(&News{Failure: &Failure{generation, v.Cause}})
	}
	b.mu.Lock()
	b.server = s
	b.mu.Unlock()
	b.send(&News{World: &World{Size: size, From: s.Epoch << 20, Peers: peers}})
}

// farewellTime is how long Over waits.
const farewellTime = 100 * time.Millisecond

// Over says that rank 0 leaves its world: failure is why its operations fail, empty if they do not. It waits a moment
// until the observer has got that, because the process may end next.
func (b *Observer) Over(failure string) {
	b.send(&News{Over: &Over{Failure: failure}})
	b.mu.Lock()
	if len(b.queue) == 0 && !b.writing {
		b.mu.Unlock()
		return
	}
	if b.quiet == nil {
		b.quiet = make(chan struct{})
	}
	quiet := b.quiet
	b.mu.Unlock()
	select {
	case <-quiet:
	case <-time.After(farewellTime):
	}
}

// Ended reports that the observer is gone.
func (b *Observer) Ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// send queues a frame.
func (b *Observer) send(n *News) {
	frame, err := n.encode()
	if err != nil {
		return // a rank with more figures than are allowed, which the server refuses
	}
	b.mu.Lock()
	if !b.ended {
		b.queue = append(b.queue, frame)
	}
	b.mu.Unlock()
	b.rouse()
}

func (b *Observer) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// write is the goroutine that writes the queue. It blocks while the observer does not read.
func (b *Observer) write() {
	for range b.wake {
		b.mu.Lock()
		frames := net.Buffers(b.queue)
		b.queue, b.writing = nil, true
		ended := b.ended
		b.mu.Unlock()
		if ended {
			return
		}
		if _, err := frames.WriteTo(b.conn); err != nil {
			b.end()
			return
		}
		b.mu.Lock()
		if b.writing = false; len(b.queue) == 0 && b.quiet != nil {
			close(b.quiet)
			b.quiet = nil
		}
		b.mu.Unlock()
	}
}

// read is the goroutine that obeys the observer, until it is gone.
func (b *Observer) read() {
	defer b.end()
	for {
		var w Wish
		if err := w.read(b.conn); err != nil {
			return
		}
		b.mu.Lock()
		s, busy := b.server, b.writing || len(b.queue) > 0
		b.mu.Unlock()
		if s == nil {
			continue
		}
		if w.Inspect != nil {
			s.Inspect(slices.Clone(*w.Inspect))
		}
		if w.Ask {
			joined := len(s.Joined())
			b.send(&News{Joined: &joined})
			if !busy {
				s.AskFigures()
			}
		}
	}
}

// end closes the connection. The job goes on.
func (b *Observer) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended, b.queue = true, nil
	if b.quiet != nil {
		close(b.quiet)
		b.quiet = nil
	}
	if b.fd >= 0 && b.o.TrackFD != nil {
		b.o.TrackFD(b.fd, false)
	}
	b.conn.Close()
	b.rouse()
}

// failed ends the observer after a panic in its goroutines.
func (b *Observer) failed(err error) {
	b.o.Log.Error(err.Error())
	b.end()
}

// Program finds the command: beside the files that are given, which are the library and the program of this process,
// as the wheel and a build place them; otherwise in PATH.
func Program(files ...string) (string, error) {
	var tried []string
	for _, file := range files {
		if file == "" {
			continue
		}
		for _, path := range beside(file) {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
			tried = append(tried, path)
		}
	}
	if path, err := exec.LookPath("gorovod"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("the command gorovod is neither at one of %q nor in PATH: reinstall the package, "+
		"or add the command's directory to PATH", tried)
}
