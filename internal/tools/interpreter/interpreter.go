// Package interpreter asks a Python about its libraries, which may hang or end its process.
package interpreter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// CallPrefix begins the lines on stderr in which a program tells, before it makes the call, which call into which
// library that is.
const CallPrefix = "gorovod calls "

// Early is the Died.How of a program that has ended without EndLine, as if it had succeeded.
const Early = "has ended early (exit status 0)"

// EndLine is the line on stderr with which a program ends that has answered everything.
const EndLine = "gorovod has answered"

// Program is a program for an interpreter.
type Program struct {
	Python string   // the interpreter: its file, or a name to be found in this process's PATH
	Args   []string // of the interpreter
	Env    []string
	Limit  time.Duration
	Stdout io.Writer // gets the program's output as it comes
}

// Died is the end of a program that has not succeeded.
type Died struct {
	How   string // such as "has ended (exit status 3)"
	Call  string // the last call that it has told; empty: none
	Words string // what it said last, on stderr; empty: nothing
}

func (d *Died) Error() string {
	text := d.How
	if d.Call != "" {
		text += "; its last call into a library was " + d.Call
	}
	if d.Words != "" {
		text += "; it said: " + d.Words
	}
	return text
}

// ErrMissing is the error if there is no such interpreter.
var ErrMissing = errors.New("there is no such program")

// Run runs the program, and kills it and its children when the limit is over, or ctx ends. The error is ErrMissing, a
// Died, or says why the interpreter cannot be started.
func (p *Program) Run(ctx context.Context) error {
	runtime.LockOSThread() // see ownGroup
	defer runtime.UnlockOSThread()
	limited, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	cmd := exec.CommandContext(limited, p.Python, p.Args...)
	said := new(tail)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env, p.Stdout, said
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		if _, missing := os.Stat(cmd.Path); missing == nil && !errors.Is(err, exec.ErrNotFound) {
			return errors.New("it cannot be run (the interpreter that its first line names is missing)")
		}
		return ErrMissing
	} else if err != nil {
		return fmt.Errorf("it cannot be run (%w)", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // which waits for whoever reads Stdout, also after the end
	var err error
	select {
	case err = <-ended:
	case <-after(limited, patience):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that it has left; there may be none
	var exit *exec.ExitError
	said.mu.Lock()
	defer said.mu.Unlock()
	switch call, words := said.last(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return &Died{fmt.Sprintf("has not ended within %v", p.Limit), call, words}
	case errors.As(err, &exit):
		if signalOf(exit) == syscall.SIGQUIT && fatal.MatchString(words) {
			return &Died{fmt.Sprintf("has ended (%s)", words), call, ""}
		}
		return &Died{fmt.Sprintf("has ended (%v)", exit), call, words}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // that is a child which it has left
		return err
	case !said.answered:
		return &Died{Early, call, words}
	}
	return nil
}

// signalOf returns the signal that has ended a program, or -1 if none has.
func signalOf(exit *exec.ExitError) syscall.Signal {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok {
		return status.Signal()
	}
	return -1
}

// patience is how long after the end of a program, or of its limit, Run waits for the reader of its output.
const patience = 3 * time.Second

// after returns a channel that is closed some time after the end of a context, if that comes.
func after(ctx context.Context, wait time.Duration) <-chan struct{} {
	over := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(wait, func() { close(over) }) })
	return over
}

// tail keeps the end of a text, and knows whether the text has had EndLine.
type tail struct {
	mu       sync.Mutex
	text     []byte
	answered bool
}

const longestTail = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := max(0, len(t.text)-len(EndLine)-2)
	t.text = append(t.text, p...)
	t.answered = t.answered || bytes.Contains(append([]byte("\n"), t.text[from:]...), []byte("\n"+EndLine+"\n"))
	if more := len(t.text) - longestTail; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

// fatal matches the line of a trace of Go or Python that says what has happened, before many lines that do not. Go's
// runtime writes its trace when another signal comes, such as SIGSEGV, and then ends the process with SIGQUIT.
var fatal = regexp.MustCompile(`^(SIG[A-Z]+|fatal error|panic|Fatal Python error): `)

// words matches a line that says something.
var words = regexp.MustCompile(`\pL`)

// last returns the last call of the text, and the line that says most about the program's end.
func (t *tail) last() (call, said string) {
	found := false // a fatal line
	for line := range bytes.Lines(t.text) {
		line := strings.TrimSpace(string(line))
		if line == EndLine {
			continue
		}
		if told, tells := strings.CutPrefix(line, CallPrefix); tells {
			call = told
			continue
		}
		if words.MatchString(line) && !found {
			said, found = line, fatal.MatchString(line)
		}
	}
	return call, said
}

// Interruptible returns a context that ends when the user interrupts this program. As nohup asks, that is not when the
// terminal is gone.
func Interruptible() (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}
