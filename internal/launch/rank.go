package launch

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/rendezvous"
)

// drainLimit is how long more output of a rank is waited for after all its
// processes have ended.
const drainLimit = time.Second

// tailPatience is how long the news of a death waits for the last lines of stderr.
const tailPatience = 100 * time.Millisecond

// rank is one process of the job with its supervisor.
type rank struct {
	Slot
	path       string           // of the command
	supervisor *os.Process      // nil if it could not be started
	state      *os.ProcessState // the supervisor's end, for reap
	reaped     atomic.Bool      // the supervisor's pid may belong to another
	control    *os.File
	status     *os.File
	pipes      [2]*os.File // stdout, stderr
	streams    [2]*stream
	files      [2]*os.File // nil without --output-filename

	mu  sync.Mutex
	pid int // of the command; 0 until it is known
}

// startError says that a rank's command could not be started, and what the
// launcher exits with.
type startError struct {
	rank int
	code int
	err  error
}

func (e *startError) Error() string { return fmt.Sprintf("cannot start rank %d: %v", e.rank, e.err) }
func (e *startError) Unwrap() error { return e.err }

// start starts the supervisor; it does not wait for the command.
func (r *rank) start(path string, argv, env []string) error {
	r.path = path
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	theirs := []*os.File{null}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func(ours **os.File, weRead bool) error {
		pr, pw, err := os.Pipe()
		if err != nil {
			return err
		}
		if !weRead {
			*ours, theirs = pw, append(theirs, pr)
		} else {
			*ours, theirs = pr, append(theirs, pw)
		}
		return nil
	}
	for _, p := range []struct {
		ours   **os.File
		weRead bool
	}{{&r.pipes[0], true}, {&r.pipes[1], true}, {&r.control, false}, {&r.status, true}} {
		if err := pipe(p.ours, p.weRead); err != nil {
			r.close()
			return err
		}
	}
	// Whatever became of the file since, this is the program that runs now.
	r.supervisor, err = os.StartProcess("/proc/self/exe", append([]string{supervisorName, path}, argv...),
		&os.ProcAttr{Files: theirs, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		r.close()
		return fmt.Errorf("its supervisor: %w", err)
	}
	return nil
}

// openFiles makes dir/rank.<n>/stdout and stderr, the rank padded with zeros to
// the width of the largest.
func (r *rank) openFiles(dir string) error {
	width := len(fmt.Sprint(r.Size - 1))
	dir = filepath.Join(dir, fmt.Sprintf("rank.%0*d", width, r.Rank))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for i, name := range [2]string{"stdout", "stderr"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		r.files[i] = f
	}
	return nil
}

// signal has the supervisor send sig to the rank; SIGKILL, to everything below it.
func (r *rank) signal(sig syscall.Signal) {
	if r.control != nil {
		r.control.Write([]byte{byte(sig)}) // a supervisor that is gone needs no orders
	}
}

// watch follows the rank to its end. It calls started when the command runs,
// ended once when it has ended or could not start (err), orphaned if the
// supervisor was killed and what was below it is to be ended, and returns when
// nothing of the rank is left.
func (r *rank) watch(started func(pid int), ended func(d rendezvous.Death, err error), orphaned func()) {
	defer r.close()
	var drained [2]chan struct{}
	over := make(chan struct{}) // all processes of the rank have ended
	for i := range drained {
		drained[i] = make(chan struct{})
		go func() {
			defer close(drained[i])
			r.streams[i].copyFrom(&drain{r.pipes[i], over})
		}()
	}
	d, err := r.follow(started)
	if err == nil && d.Failed() {
		select {
		case <-drained[1]:
		case <-time.After(tailPatience):
		}
		d.Stderr = r.streams[1].last()
	}
	ended(d, err)
	if state := r.reap(); !state.Success() {
		orphaned()
	}
	close(over)
	for i := range drained {
		r.pipes[i].SetReadDeadline(time.Now().Add(drainLimit))
		<-drained[i]
	}
}

// drain reads a rank's pipe to its end. Once the rank is over, everything that
// could write is dead, and only what escaped from the supervisor's hands can
// hold the pipe open: then no read waits for longer than drainLimit. What is in
// the pipe is never lost, however slowly it is taken.
type drain struct {
	pipe *os.File
	over <-chan struct{}
}

func (d *drain) Read(p []byte) (int, error) {
	select {
	case <-d.over:
		d.pipe.SetReadDeadline(time.Now().Add(drainLimit))
	default:
	}
	return d.pipe.Read(p)
}

// follow reads the supervisor's reports until the command has ended.
func (r *rank) follow(started func(pid int)) (rendezvous.Death, error) {
	d := rendezvous.Death{Rank: r.Rank, Host: r.Host}
	lines := bufio.NewReader(r.status)
	for {
		var what string
		var n int
		line, err := lines.ReadString('\n')
		if err == nil {
			_, err = fmt.Sscanf(line, "%s %d\n", &what, &n)
		}
		if err != nil {
			return r.orphaned(d, err)
		}
		switch what {
		case "started":
			r.mu.Lock()
			r.pid = n
			r.mu.Unlock()
			d.PID = n
			started(n)
		case "failed":
			code := exitNotExecutable
			errno := syscall.Errno(n)
			if errno == syscall.ENOENT {
				code = exitNotFound
			}
			return d, &startError{r.Rank, code, fmt.Errorf("%s: %w", r.path, errno)}
		case "exited":
			d.ExitCode = n
			return d, nil
		case "killed":
			d.Signal = n
			return d, nil
		}
	}
}

// orphaned is the end of a rank whose supervisor has been killed: the kernel has
// killed the command with it.
func (r *rank) orphaned(d rendezvous.Death, err error) (rendezvous.Death, error) {
	r.supervisor.Kill() // should it live, and talk nonsense
	state := r.reap()
	if d.PID == 0 {
		if state.Exited() {
			return d, &startError{r.Rank, 1, fmt.Errorf("its supervisor has ended early: %w", err)}
		}
		d.PID = r.supervisor.Pid // all that is known
	}
	d.Signal = int(syscall.SIGKILL)
	return d, nil
}

// reap waits for the supervisor's end. It may be called again, by the same goroutine.
func (r *rank) reap() *os.ProcessState {
	if r.state == nil {
		var err error
		if r.state, err = r.supervisor.Wait(); err != nil {
			r.state = &os.ProcessState{} // nothing is known of it
		}
		r.reaped.Store(true)
	}
	return r.state
}

func (r *rank) close() {
	for _, f := range []*os.File{r.control, r.status, r.pipes[0], r.pipes[1], r.files[0], r.files[1]} {
		if f != nil {
			f.Close()
		}
	}
}
