package launch

import (
	"fmt"
	"syscall"
	"time"
)

// crew runs commands on one host, each below a supervisor of its own, from its
// making until Close, at any time. The ids are the caller's: an id may be used
// again when its watcher has been told Over. All methods may be called on any
// goroutine, and only Close blocks.
type crew interface {
	// Host is the host as the user names it; several names of this host share
	// one crew, which has the first of them.
	Host() string
	// Start begins to start c; w is told what becomes of it.
	Start(id int, c command, w watcher)
	// Signal sends sig to the command's process group; SIGKILL, to everything
	// below its supervisor. It reaches a command that is only being started. An
	// id that is gone needs no signals.
	Signal(id int, sig syscall.Signal)
	// Lost is closed when the crew can be reached no more, which Err explains
	// then: each command has ended or will end by itself, unseen.
	Lost() <-chan struct{}
	Err() error
	// Close ends what is left, and the crew. It does not wait for what is left,
	// but for a bounded time for the crew.
	Close()
}

// command is what a crew runs.
type command struct {
	// Path is the program's file; where it is empty, Args[0] is looked up in the
	// PATH of Env, as a shell does.
	Path string
	// Args is the whole argv, the program's name included.
	Args []string
	// Env is the environment. A crew on another host adds to it what the host's
	// own login has and Env has not.
	Env []string
	// Results gives the command a third stream, to whose descriptor
	// resultVariable points.
	Results bool
	// LateOutput says where its output goes when the launcher is gone, as
	// lateOutputVariable does; empty: it is lost.
	LateOutput string `json:",omitempty"`
}

// The streams of a command.
const (
	stdoutStream = iota
	stderrStream
	resultStream
	streamCount
)

var streamNames = [streamCount]string{"stdout", "stderr", "results"}

// watcher hears what becomes of one command: Started at most once, Ended once,
// then Gone once, then Over once, each on some goroutine of the crew. In between comes its output,
// after Gone too: processes end, however slowly what they have written is read. Nothing
// follows Over.
type watcher interface {
	// Started: the command runs with this pid of its host.
	Started(pid int)
	// Output brings what the command has written, in its order. Each stream
	// has a goroutine of its own, and is read no further while Output blocks. An
	// empty p is the stream's end. p is the crew's again after the call.
	Output(stream int, p []byte)
	// Ended: the command has ended, or could not start.
	Ended(e outcome)
	// Gone: no process of the command is left.
	Gone()
	// Over: all its output has come, too.
	Over()
}

// outcome is how a command ended.
type outcome struct {
	PID    int // 0 where it is not known, or the command did not start
	Signal int // that killed it; 0 where it exited by itself
	Code   int // of its exit; where it could not start, what a shell would exit with
	// At is when it ended, by this host's clock; zero where that is not known.
	At time.Time
	// Err is not nil where the command could not start.
	Err error
	// Lost is not nil where nothing is known of the end, as the host was lost.
	Lost error
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
