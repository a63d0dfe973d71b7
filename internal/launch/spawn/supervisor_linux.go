package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"golang.org/x/sys/unix"
)

// SupervisorName is the supervisor's argv[0]. Its arguments are the path of the command and the command's own argv. It
// inherits the rank's environment, stdin, stdout and stderr, and two pipes. From the first it reads bytes: each is a
// signal to send to the command's process group (SIGKILL goes to everything below; those of Forwarded, to what catches
// them). The end of this pipe means that the launcher is gone. To the second it writes lines:
//
//	started PID
//	forwarded COUNT   how many processes got a signal of Forwarded
//	failed ERRNO      the command could not be started
//	exited CODE TIME
//	killed SIGNAL TIME
//
// TIME is when the command ended, in Unix nanoseconds. A launcher that was stopped reads several ends at once, and
// orders them by TIME.
//
// With ResultVariable in its environment it inherits one more pipe, for the command. With lateOutputVariable it
// inherits two more, from the command.
const SupervisorName = "gorovod-supervisor"

const (
	controlFD = 3
	statusFD  = 4
	resultFD  = 5
	// commandResultFD is where the command finds the pipe for its results.
	commandResultFD = 3
)

const (
	// LeftoverGrace is how long processes may take to end after SIGTERM when
	// the launcher is gone, or when their rank has ended.
	LeftoverGrace = time.Second
	// FarewellTime is how long a worker of an elastic job may take to end by itself when the launcher is gone.
	FarewellTime = 5 * time.Second
	// keepTime replaces FarewellTime for a worker that may have to write a large commit to a disk.
	keepTime = time.Minute
	// sweepInterval is the pause between two rounds of SIGKILL.
	sweepInterval = 20 * time.Millisecond
	// sweepLimit is how long SIGKILL is repeated. Processes that survive it (in the kernel, waiting for a disk) are
	// given up.
	sweepLimit = 10 * time.Second
)

// supervisorAttr starts a supervisor in a session of its own. If the launcher dies while the supervisor is stopped, the
// kernel sends the supervisor SIGCONT.
func supervisorAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// Supervise is the main function of a supervisor process.
func Supervise(args []string) int {
	// Pdeathsig, the kernel's own safeguard, is bound to the thread that forks.
	runtime.LockOSThread()
	status := os.NewFile(statusFD, "status")
	control := os.NewFile(controlFD, "control")
	if len(args) < 2 || status == nil || control == nil {
		return ending.UsageCode
	}
	unix.CloseOnExec(statusFD)
	unix.CloseOnExec(controlFD)
	// Caught rather than ignored, because the command would inherit an ignored signal.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintf(status, "failed %d\n", err)
		return 1
	}

	all := newFamily()
	files := []uintptr{0, 1, 2}
	if os.Getenv(ResultVariable) != "" {
		unix.CloseOnExec(resultFD)
		files = append(files, resultFD) // becomes commandResultFD
	}
	words := inheritLateOutput(resultFD + len(files) - 3)
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true,
		Pdeathsig: unix.SIGKILL}}
	pid, err := syscall.ForkExec(args[0], args[1:], attr)
	if errors.Is(err, unix.ENOEXEC) {
		// A script without #!: sh runs it, as in a shell.
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", args[0]}, args[2:]...), attr)
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		fmt.Fprintf(status, "failed %d\n", errno)
		return 1
	}
	fmt.Fprintf(status, "started %d\n", pid)
	// The rank's output ends when the rank and its descendants have closed it.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Dup3(null, 1, 0)
		unix.Dup3(null, 2, 0)
		if len(files) > 3 {
			unix.Close(resultFD)
		}
	}

	all.add(pid)
	s := &supervisor{pid: pid, status: status, all: all, words: words}
	defer all.tidy()
	defer func() { words.end(hungUp(controlFD)) }()
	return s.run(control, signals)
}

type supervisor struct {
	pid    int
	status io.Writer
	dead   bool // the command has been reaped: its pid may belong to another process
	words  *lateOutput
	all    *family // the command, and all processes that lived when it ended or after
}

// run returns when no descendant is left that can be killed.
func (s *supervisor) run(control io.Reader, signals <-chan os.Signal) int {
	orders := make(chan unix.Signal)
	go readOrders(control, orders)
	reaped := make(chan child)
	leftovers := make(chan struct{})
	none := make(chan struct{})
	go reap(s.pid, reaped, leftovers, none)

	var farewell <-chan time.Time
	var kill <-chan time.Time
	var giveUp <-chan time.Time
	end := func(grace time.Duration) {
		if kill == nil {
			s.signal(unix.SIGTERM)
			kill = time.After(grace)
		}
	}
	for {
		select {
		case sig, ok := <-orders:
			switch {
			case !ok:
				orders = nil
				s.words.take()
				if os.Getenv(ElasticVariable) != "" {
					farewell = time.After(FarewellTime) // the worker notices the launcher's end by itself
					if os.Getenv("GOROVOD_CHECKPOINT_DIR") != "" {
						farewell = time.After(keepTime)
					}
				} else {
					end(LeftoverGrace)
				}
			case sig == unix.SIGKILL:
				kill = time.After(0)
			case isForwarded(sig):
				fmt.Fprintf(s.status, "forwarded %d\n", forwardBelow(os.Getpid(), sig))
			default:
				s.signal(sig)
			}
		case <-farewell:
			end(LeftoverGrace)
		case <-signals:
			end(LeftoverGrace)
		case c := <-reaped:
			switch {
			case c.pid != s.pid:
				// A process that was orphaned before the command ended may be long gone, and its pid reused.
				if s.dead {
					s.all.add(c.pid)
				}
			case c.how.Signaled():
				s.dead = true
				fmt.Fprintf(s.status, "killed %d %d\n", c.how.Signal(), c.at.UnixNano())
			default:
				s.dead = true
				fmt.Fprintf(s.status, "exited %d %d\n", c.how.ExitStatus(), c.at.UnixNano())
			}
		case <-leftovers:
			end(LeftoverGrace)
		case <-none:
			return 0
		case <-kill:
			if giveUp == nil {
				giveUp = time.After(sweepLimit)
			}
			for _, p := range s.living() {
				unix.Kill(p, unix.SIGKILL)
			}
			kill = time.After(sweepInterval)
		case <-giveUp:
			return 1
		}
	}
}

// signal sends sig to the command's process group; after the command's end, to each process that the command left
// behind.
func (s *supervisor) signal(sig unix.Signal) {
	targets := s.living() // remember them now: nobody can list them once they have ended
	if !s.dead {
		targets = []int{-s.pid}
	}
	for _, p := range targets {
		unix.Kill(p, sig)
		if sig == unix.SIGTERM {
			unix.Kill(p, unix.SIGCONT) // a stopped process sees no other signal
		}
	}
}

// living lists the rank's processes, and remembers them.
func (s *supervisor) living() []int {
	pids := Descendants(os.Getpid())
	s.all.add(pids...)
	if len(pids) == 0 && !hasProc() {
		return []int{-s.pid} // without /proc only the command's process group is known
	}
	return pids
}

// readOrders closes orders when the launcher is gone.
func readOrders(control io.Reader, orders chan<- unix.Signal) {
	defer close(orders)
	var b [1]byte
	for {
		if _, err := io.ReadFull(control, b[:]); err != nil {
			return
		}
		orders <- unix.Signal(b[0])
	}
}

// child is the end of a child.
type child struct {
	pid int
	how syscall.WaitStatus
	at  time.Time
}

// reap waits for all children, also for processes that were orphaned below. Once pid has ended, it reports pid before
// the processes orphaned by that end, then says once on leftovers that others are left. It closes none when no child is
// left.
func reap(pid int, reaped chan<- child, leftovers chan<- struct{}, none chan<- struct{}) {
	defer close(none)
	told, ended := false, false
	for {
		options := 0
		if ended && !told {
			options = syscall.WNOHANG
		}
		var ws syscall.WaitStatus
		p, err := syscall.Wait4(-1, &ws, options, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return // ECHILD
		case p == 0:
			told = true
			leftovers <- struct{}{}
			continue
		case p == pid:
			ended = true
		case !ended:
			// The kernel reports dead children in any order.
			var how syscall.WaitStatus
			if c, err := syscall.Wait4(pid, &how, syscall.WNOHANG, nil); err == nil && c == pid {
				ended = true
				reaped <- child{pid, how, time.Now()}
			}
		}
		reaped <- child{p, ws, time.Now()}
	}
}

// WakeWithParent makes the kernel send SIGCONT to this process when its parent dies, because a stopped process must
// still notice that it has to end. It binds the calling goroutine to its thread: the effect lasts as long as the
// thread.
func WakeWithParent() {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0)
}
