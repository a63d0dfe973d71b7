// Package spawn runs commands on this host, watches them, and ends them: always all of them, also after the launcher's
// own death.
//
// The launcher starts for each command a supervisor (the same program, under another name), which starts the command:
//
//	launcher ──control pipe──▶ supervisor ──fork──▶ command ─▶ its children
//	   ▲ ◀──────status pipe────────┘                   │
//	   └──────────────stdout, stderr pipes─────────────┘
//
// A supervisor knows exactly how its command ended. It is the reaper (subreaper) of all processes that the command
// leaves behind, and ends them all when the control pipe closes. Only a SIGKILL of the supervisor itself can prevent
// that. Then the kernel kills the command, and the launcher reaps and ends the rest.
//
// The launcher and the agents on other hosts run commands through a Crew, whose events a Watcher gets. A program that
// makes a LocalCrew must be ready to be started again as a supervisor: if its argv[0] is SupervisorName, it does
// nothing but call Supervise. This package knows commands, streams and signals. It must not know jobs, ranks' places,
// or other hosts.
package spawn

import (
	"context"
	"syscall"
	"time"
)

// Crew runs commands on one host until Close, each below a supervisor of its own. The caller chooses the ids, and may
// use an id again after its watcher's Over. All methods may be called on any goroutine; only Forward and Close block.
type Crew interface {
	// Host is the host as the user names it. Several names of this host share one crew, which has the first of them.
	Host() string
	// Start begins to start c, and reports to w.
	Start(id int, c Command, w Watcher)
	// Signal sends sig to the command's process group; SIGKILL goes to everything below its supervisor. It also
	// reaches a command that is starting, and ignores ids that are gone.
	Signal(id int, sig syscall.Signal)
	// Forward sends sig to the processes of each command that catch it, and to no other. It waits until ctx ends for
	// the number of commands that have got it.
	Forward(ctx context.Context, sig syscall.Signal) Delivery
	// Lost is closed when the crew cannot be reached any more; Err then says why. Its commands have ended or will end
	// by themselves, unseen.
	Lost() <-chan struct{}
	Err() error
	// Close ends the remaining commands, and the crew. It waits for the crew, for a bounded time, but not for the
	// commands.
	Close()
}

// Command is a command for a crew.
type Command struct {
	// Path is the program's file. If it is empty, the crew looks Args[0] up in the PATH of Env, as a shell does.
	Path string
	// Args is the whole argv, the program's name included.
	Args []string
	// Env is the environment. A crew on another host adds the variables of the host's login that Env lacks.
	Env []string
	// Results gives the command a third stream, to whose descriptor ResultVariable points.
	Results bool
	// LateOutput is where the output goes when the launcher is gone, as in lateOutputVariable; empty: it is lost.
	LateOutput string `json:",omitempty"`
}

// The streams of a command.
const (
	Stdout = iota
	Stderr
	Results
	Streams // how many there are
)

// StreamNames are the names of the streams, for people and for files.
var StreamNames = [Streams]string{"stdout", "stderr", "results"}

// Watcher gets the events of one command: Started at most once, then Ended, Gone and Over, each once and each on some
// goroutine of the crew. Output comes until Over, also after Gone: a process can end before a slow reader has read all
// its output. Nothing follows Over.
type Watcher interface {
	// Started: the command runs with this pid of its host.
	Started(pid int)
	// Output brings the command's output, in order. Each stream has a goroutine of its own, and is not read while
	// Output blocks. An empty p is the stream's end. Do not keep p.
	Output(stream int, p []byte)
	// Ended: the command has ended, or could not start.
	Ended(e Outcome)
	// Gone: no process of the command is left.
	Gone()
	// Over: all its output has come, too.
	Over()
}

// Outcome is how a command ended.
type Outcome struct {
	PID    int // 0 if it is not known, or the command did not start
	Signal int // the signal that killed the command; 0 if it exited by itself
	Code   int // the exit code; if the command could not start, a shell's exit code for that
	// At is when the command ended, by this host's clock; zero if that is not known.
	At time.Time
	// Err says why the command could not start; otherwise nil.
	Err error
	// Lost says how the host was lost, so that nobody knows how the command ended; otherwise nil.
	Lost error
}

// SecretVariable has the job's secret for the processes, in hexadecimal.
const SecretVariable = "HOROVOD_SECRET_KEY"

// ElasticVariable tells a worker of an elastic job its driver's addresses. Such a worker may end by itself when the
// launcher is gone.
const ElasticVariable = "GOROVOD_ELASTIC_DRIVER"
