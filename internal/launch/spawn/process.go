package spawn

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"golang.org/x/sys/unix"
)

// DrainLimit is how long the launcher waits for more output of a command after all its processes have ended.
const DrainLimit = time.Second

// TailPatience is how long the report of a failure waits for the last lines of stderr.
const TailPatience = 100 * time.Millisecond

// VigilInterval is the time between two looks at a supervisor that has not reported its command's end.
const VigilInterval = 50 * time.Millisecond

// obedience is how long a supervisor may take to end after the order SIGKILL. Then the launcher kills the supervisor,
// and ends the processes below it.
const obedience = 2 * time.Second

// KillGrace is how long to wait for commands after SIGKILL, a little more than their supervisors do.
const KillGrace = sweepLimit + 2*time.Second

// ResultVariable names the descriptor of a command's results.
const ResultVariable = "GOROVOD_RESULT_FD"

// lateOutputVariable tells a supervisor where the output of its command goes once the launcher is gone. It is a
// directory, with a file for each stream, or a file's name in the directory for temporary files. The supervisor then
// has the read ends of stdout and stderr as its last descriptors. The command does not get the variable.
const lateOutputVariable = "_GOROVOD_LATE_OUTPUT"

// process is one command on this host with its supervisor.
type process struct {
	Command
	supervisor atomic.Pointer[os.Process] // nil until it is started
	state      *os.ProcessState           // how the supervisor ended, for reap
	reaped     atomic.Bool                // the supervisor was reaped: its pid may belong to another process
	pid        int                        // of the command, 0 until it is known. Owned by watch's goroutine
	vigil      *vigil                     // nil until the pid is known. Owned by watch's goroutine
	sweeps     *sync.RWMutex              // held for reading, it keeps orphans from being swept

	over   chan struct{} // closed when the command has ended
	caught chan int      // capacity 1: how many processes got the signal that the supervisor has forwarded

	control *os.File
	status  *os.File
	pipes   [Streams]*os.File // where this process reads the streams; the last one is nil without Results
	theirs  []*os.File        // the supervisor's ends, until the supervisor has them
}

// open makes the pipes. From then on signals can be sent. The command reads input from its beginning; a nil input is
// empty.
func (p *process) open(input *os.File) error {
	stdin, err := openInput(input)
	if err != nil {
		return err
	}
	p.theirs = append(p.theirs, stdin)
	pipe := func(ours **os.File, weRead bool) error {
		pr, pw, err := os.Pipe()
		if err != nil {
			return err
		}
		if !weRead {
			*ours, p.theirs = pw, append(p.theirs, pr)
		} else {
			*ours, p.theirs = pr, append(p.theirs, pw)
		}
		return nil
	}
	type end struct {
		ours   **os.File
		weRead bool
	}
	ends := []end{{&p.pipes[Stdout], true}, {&p.pipes[Stderr], true}, {&p.control, false},
		{&p.status, true}}
	if p.Results {
		ends = append(ends, end{&p.pipes[Results], true})
	}
	for _, e := range ends {
		if err := pipe(e.ours, e.weRead); err != nil {
			return err
		}
	}
	if p.LateOutput != "" {
		for _, pipe := range p.pipes[:Stderr+1] {
			f, err := duplicate(pipe)
			if err != nil {
				return err
			}
			p.theirs = append(p.theirs, f)
		}
	}
	return nil
}

// openInput opens a command's stdin.
func openInput(input *os.File) (*os.File, error) {
	if input == nil {
		return os.Open(os.DevNull)
	}
	stdin, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", input.Fd()))
	if err == nil {
		return stdin, nil
	}
	// Without /proc a pipe brings the input. If the command ends before it has read all of it, the goroutine that
	// writes ends, too.
	stdin, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		defer w.Close()
		io.Copy(w, io.NewSectionReader(input, 0, 1<<62))
	}()
	return stdin, nil
}

// start starts the supervisor; it does not wait for the command. On an error, code is a shell's exit code for it.
func (p *process) start() (code int, err error) {
	defer p.handOver()
	if p.Path == "" {
		if p.Path, code, err = FindCommand(p.Args[0], environment.Get(p.Env, "PATH")); err != nil {
			return code, err
		}
	}
	env := p.Env
	if p.Results {
		env = environment.Set(env, ResultVariable, fmt.Sprint(commandResultFD))
	}
	if p.LateOutput != "" {
		env = environment.Set(env, lateOutputVariable, p.LateOutput)
	}
	self, err := RunningProgram()
	if err != nil {
		return 1, fmt.Errorf("its supervisor: %w", err)
	}
	supervisor, err := os.StartProcess(self, append([]string{SupervisorName, p.Path}, p.Args...),
		&os.ProcAttr{Files: p.theirs, Env: env, Sys: supervisorAttr()})
	if err != nil {
		return 1, fmt.Errorf("its supervisor: %w", err)
	}
	p.supervisor.Store(supervisor)
	return 0, nil
}

// handOver closes this process's copies of the supervisor's ends.
func (p *process) handOver() {
	for _, f := range p.theirs {
		f.Close()
	}
	p.theirs = nil
}

// signal lets the supervisor send sig to the command's process group; SIGKILL goes to everything below the supervisor.
// For SIGTERM and SIGKILL it also continues a stopped supervisor. It kills a supervisor that does not obey SIGKILL.
func (p *process) signal(sig syscall.Signal) {
	p.control.Write([]byte{byte(sig)}) // an error means that the supervisor is gone, and so is its command
	if sig == syscall.SIGTERM || sig == syscall.SIGKILL {
		p.wake()
	}
	if supervisor := p.supervisor.Load(); sig == syscall.SIGKILL && supervisor != nil {
		time.AfterFunc(obedience, func() { supervisor.Kill() }) // Kill does nothing if the supervisor has ended
	}
}

// wake continues a stopped supervisor.
func (p *process) wake() {
	if supervisor := p.supervisor.Load(); supervisor != nil {
		supervisor.Signal(syscall.SIGCONT)
	}
}

// watch follows the command to its end, and reports to w. It calls orphaned if the supervisor was killed and the
// processes below it are left to end. It returns when nothing of the command is left, and all its output was taken.
func (p *process) watch(w Watcher, orphaned func()) {
	var drained [Streams]chan struct{}
	over := make(chan struct{}) // closed when all processes of the command have ended
	for i, pipe := range p.pipes {
		drained[i] = make(chan struct{})
		if pipe == nil {
			close(drained[i])
			continue
		}
		go func() {
			defer close(drained[i])
			pour(&drain{pipe, over}, i, w)
		}()
	}
	e := p.follow(w)
	if e.Err == nil && (e.Signal != 0 || e.Code != 0) {
		select {
		case <-drained[Stderr]:
		case <-time.After(TailPatience):
		}
	}
	w.Ended(e)
	if state := p.reap(); !state.Success() {
		orphaned()
	}
	close(over)
	w.Gone()
	for i, pipe := range p.pipes {
		if pipe != nil {
			pipe.SetReadDeadline(time.Now().Add(DrainLimit))
		}
		<-drained[i]
	}
}

// pour reads a stream to its end.
func pour(d *drain, stream int, w Watcher) {
	buf := make([]byte, 32<<10)
	for {
		n, err := d.Read(buf)
		if n > 0 {
			w.Output(stream, buf[:n])
		}
		if err != nil {
			w.Output(stream, nil)
			return
		}
	}
}

// drain reads a command's pipe to its end. Once the command is over, only a process that has escaped from the
// supervisor can hold the pipe open: from then on a read waits at most DrainLimit. Bytes in the pipe are never lost,
// however slowly they are taken.
type drain struct {
	pipe *os.File
	over <-chan struct{}
}

func (d *drain) Read(p []byte) (int, error) {
	select {
	case <-d.over:
		d.pipe.SetReadDeadline(time.Now().Add(DrainLimit))
	default:
	}
	return d.pipe.Read(p)
}

// follow reads the supervisor's reports until the command has ended.
func (p *process) follow(w Watcher) Outcome {
	defer close(p.over)
	lines := bufio.NewReader(p.status)
	for {
		var what string
		var n int
		var at int64 // when the command ended, in Unix ns
		line, err := lines.ReadString('\n')
		if err == nil {
			var fields int
			if fields, err = fmt.Sscan(line, &what, &n, &at); fields >= 2 {
				err = nil
			}
		}
		if err != nil {
			return p.orphaned(err)
		}
		switch what {
		case "started":
			p.pid = n
			p.vigil = keepVigil(p)
			defer p.vigil.end()
			w.Started(n)
		case "forwarded":
			p.heard(n)
		case "failed":
			code := NotExecutableCode
			errno := syscall.Errno(n)
			if errno == syscall.ENOENT {
				code = NotFoundCode
			}
			return Outcome{Code: code, Err: fmt.Errorf("%s: %w", p.Path, errno)}
		case "exited":
			return Outcome{PID: p.pid, Code: n, At: new(rendezvous.Clock).Here(at, time.Now())}
		case "killed":
			return Outcome{PID: p.pid, Signal: n, At: new(rendezvous.Clock).Here(at, time.Now())}
		}
	}
}

// orphaned returns how a command ended whose supervisor was killed. The kernel kills the command with its supervisor,
// unless the command had ended before.
func (p *process) orphaned(err error) Outcome {
	p.supervisor.Load().Kill() // in case it lives, and its reports make no sense
	p.vigil.end()
	how, at, known := p.vigil.fate()
	p.sweeps.RLock()
	state := p.reap()
	if !known {
		at = time.Now()
		how, known = takeOrphan(p.pid)
	}
	p.sweeps.RUnlock()
	e := Outcome{PID: p.pid, Signal: int(syscall.SIGKILL), At: at}
	switch {
	case known && how.Signaled():
		e.Signal = int(how.Signal())
	case known:
		e.Signal, e.Code = 0, how.ExitStatus()
	case e.PID == 0 && state.Exited():
		return Outcome{Code: 1, Err: fmt.Errorf("its supervisor has ended early: %w", err)}
	case e.PID == 0:
		e.PID = p.supervisor.Load().Pid // no other pid is known
	}
	return e
}

// reap waits for the supervisor's end. The same goroutine may call it again.
func (p *process) reap() *os.ProcessState {
	if p.state == nil {
		var err error
		if p.state, err = p.supervisor.Load().Wait(); err != nil {
			p.state = &os.ProcessState{} // nothing is known of its end
		}
		p.reaped.Store(true)
	}
	return p.state
}

// leave hands the output over to the supervisor, which notices when the launcher ends.
func (p *process) leave() {
	if p.LateOutput == "" {
		return
	}
	for _, pipe := range p.pipes[:Stderr+1] {
		pipe.SetReadDeadline(time.Now())
	}
}

func (p *process) close() {
	p.handOver()
	for _, f := range append([]*os.File{p.control, p.status}, p.pipes[:]...) {
		if f != nil {
			f.Close()
		}
	}
}

// duplicate is another descriptor for what f reads.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
