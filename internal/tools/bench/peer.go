package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startLimit is how long a job may take to connect all its ranks.
	startLimit = 90 * time.Second
	// orderLimit is how long ranks may take to carry out one order.
	orderLimit = 30 * time.Second
	// quitLimit is how long a job may take to end by itself.
	quitLimit = 5 * time.Second
	// killLimit is how long the job's launcher may take to end the job.
	killLimit = 20 * time.Second
)

// contender is a job whose ranks wait for orders. Its methods belong to one goroutine.
type contender struct {
	name  string
	about string        // versions
	modes []string      // the modes that it has
	limit time.Duration // for one order
	rests bool          // its ranks are stopped outside of its turns

	np       int
	args     []string // horovodrun's
	env      []string
	listener net.Listener
	launcher *exec.Cmd
	ended    chan struct{} // closed when the launcher has ended
	output   tail
	conns    []net.Conn // by rank
	lines    []*bufio.Reader
	ranks    []*os.Process // of a contender that rests
	failure  error         // why it no longer takes part
}

// newContender makes a job of np ranks that connect to a socket in dir. For command, see launch.
func newContender(dir, name, about string, np int, modes ...string) (*contender, error) {
	c := &contender{name: name, about: about, np: np, modes: modes, env: os.Environ(), limit: orderLimit}
	path := filepath.Join(dir, name)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w (is TMPDIR's name too long?)", path, err)
	}
	c.listener = l
	return c, nil
}

// socket is the socket to which the ranks connect.
func (c *contender) socket() string { return c.listener.Addr().String() }

// launch makes the launcher start slots processes of command, which become the ranks or start them. The end of ctx ends
// all of them. show takes their output.
func (c *contender) launch(ctx context.Context, slots int, show io.Writer, command ...string) error {
	c.args = append([]string{"-np", strconv.Itoa(slots), "--start-timeout", "60", "--grace-period", "1", "--"},
		command...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", c.args...)
	cmd.Args[0] = "horovodrun"
	cmd.Env = c.env
	return c.start(cmd, show)
}

// start starts the job's launcher. cmd has been made for a context, whose end ends the launcher. show takes the job's
// output; it may be nil.
func (c *contender) start(cmd *exec.Cmd, show io.Writer) error {
	cmd.Stdout, cmd.Stderr = &c.output, &c.output
	if show != nil {
		cmd.Stdout, cmd.Stderr = show, io.MultiWriter(show, &c.output)
	}
	cmd.SysProcAttr = jobAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killLimit
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the launcher: %w", err)
	}
	c.launcher, c.ended = cmd, make(chan struct{})
	go func() {
		defer close(c.ended)
		cmd.Wait()
		c.listener.Close() // no more ranks come
	}()
	return nil
}

// greet waits until all ranks are connected. From then on a contender that rests does so.
func (c *contender) greet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.listener.Close() })
	defer stop()
	c.conns, c.lines = make([]net.Conn, c.np), make([]*bufio.Reader, c.np)
	c.listener.(*net.UnixListener).SetDeadline(time.Now().Add(startLimit))
	for range c.np {
		conn, err := c.listener.Accept()
		if err != nil {
			return c.explain(err)
		}
		conn.SetReadDeadline(time.Now().Add(startLimit))
		lines := bufio.NewReader(conn)
		line, err := lines.ReadString('\n')
		var rank int
		if err == nil {
			_, err = fmt.Sscanf(line, "hello %d\n", &rank)
		}
		if err == nil && (rank < 0 || rank >= c.np || c.conns[rank] != nil) {
			err = fmt.Errorf("rank %d of %d came, or came twice", rank, c.np)
		}
		if err == nil {
			err = c.acquaint(conn)
		}
		if err != nil {
			conn.Close()
			return c.explain(err)
		}
		c.conns[rank], c.lines[rank] = conn, lines
	}
	c.rest()
	return nil
}

// can reports whether the contender takes part in a task.
func (c *contender) can(t *task) bool { return c.failure == nil && slices.Contains(c.modes, t.mode) }

// do makes all ranks do the task, and returns the seconds of one operation in each repetition, those of the slowest
// rank.
func (c *contender) do(ctx context.Context, t *task, reps int) ([]float64, error) {
	stop := context.AfterFunc(ctx, c.hangUp)
	defer stop()
	c.wake()
	defer c.rest()
	order := t.order(reps)
	for _, conn := range c.conns {
		conn.SetDeadline(time.Now().Add(c.limit))
		if _, err := io.WriteString(conn, order); err != nil {
			return nil, c.explain(err)
		}
	}
	slowest := make([]float64, reps)
	for rank, lines := range c.lines {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, c.explain(fmt.Errorf("rank %d: %w", rank, err))
		}
		if err := takeTimes(line, slowest); err != nil {
			return nil, c.explain(fmt.Errorf("rank %d: %w", rank, err))
		}
	}
	for i := range slowest {
		slowest[i] /= 1e9 * float64(t.inner)
	}
	return slowest, nil
}

// takeTimes reads a rank's answer, and raises each lesser time in slowest.
func takeTimes(line string, slowest []float64) error {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ok" {
		return errors.New(strings.TrimSpace(strings.TrimPrefix(line, "error ")))
	}
	if len(words) != len(slowest)+1 {
		return fmt.Errorf("%d times for %d repetitions", len(words)-1, len(slowest))
	}
	for i, word := range words[1:] {
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil || ns < 0 {
			return fmt.Errorf("%q is no time", word)
		}
		// A clock that stands still between two looks would give an infinite rate.
		slowest[i] = max(slowest[i], float64(ns), 1)
	}
	return nil
}

// explain adds the job's last output to an error.
func (c *contender) explain(err error) error {
	select {
	case <-c.ended:
		err = errors.New("the job has ended")
	case <-time.After(200 * time.Millisecond): // it may be about to print why
	}
	if said := c.output.last(); said != "" {
		return fmt.Errorf("%s: %w; it said last:\n%s", c.name, err, said)
	}
	return fmt.Errorf("%s: %w", c.name, err)
}

// hangUp ends the ranks: they leave when the control connection closes. Those that rest wake up to see it.
func (c *contender) hangUp() {
	c.listener.Close()
	for _, conn := range c.conns {
		if conn != nil {
			conn.Close()
		}
	}
	c.wake()
}

// end returns when nothing of the job is left.
func (c *contender) end() {
	c.hangUp()
	if c.launcher == nil {
		return
	}
	select {
	case <-c.ended:
		return
	case <-time.After(quitLimit):
	}
	c.launcher.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(killLimit):
		c.launcher.Process.Kill() // its supervisors end the ranks
		<-c.ended
	}
}

// tail keeps the end of a job's output. It is safe on any goroutine.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}
