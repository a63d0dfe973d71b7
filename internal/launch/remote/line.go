package remote

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Line is a connection to an agent. It is a program, usually ssh, that passes its stdin and stdout on to another host,
// or the agent's own connection. The line's owner reads out, writes in, and closes both.
type Line struct {
	name string         // the program, or the connection in words
	args []string       // its command line, without the remote command; nil for a connection
	in   io.WriteCloser // its stdin
	out  Outlet         // its stdout
	says *tailOf        // its stderr
	said chan struct{}  // closed at the end of stderr
	died chan struct{}  // closed when the program has ended
	code int            // its exit code, when died is closed; -1 if a signal killed it
	fate string         // how it ended, in words
	kill func()         // ends it and what it has started to reach the host; do not call it after died
}

// Outlet is the end of a line from which the launcher reads.
type Outlet interface {
	io.ReadCloser
	SetReadDeadline(t time.Time) error
}

// NewLine makes a line of a connection. Whoever makes it closes died at the connection's end, also after kill.
func NewLine(name string, in io.WriteCloser, out Outlet, died chan struct{}, kill func()) *Line {
	l := &Line{name: name, in: in, out: out, says: &tailOf{}, said: make(chan struct{}), died: died, code: -1,
		fate: "was cut short", kill: kill}
	close(l.said)
	return l
}

// openLine starts a program as a line. It has a process group of its own, so that Ctrl-C reaches only the launcher,
// and no terminal on which to ask questions.
func openLine(cmd *exec.Cmd) (*Line, error) {
	l := &Line{name: cmd.Args[0], args: cmd.Args[:len(cmd.Args)-1], says: &tailOf{}, said: make(chan struct{}),
		died: make(chan struct{})}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer stdout.Close()
	said, stderr, err := os.Pipe()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	defer stderr.Close()
	l.in, l.out = in, out
	// Files instead of exec's pipes, because exec waits for its pipes' end, and a process that ssh leaves in the
	// background for later connections may hold them open.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		said.Close()
		return nil, err
	}
	l.kill = func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	go func() {
		defer close(l.said)
		io.Copy(l.says, said)
		said.Close()
	}()
	go func() {
		cmd.Wait()
		l.code = cmd.ProcessState.ExitCode()
		if l.fate = fmt.Sprintf("ended with code %d", l.code); l.code < 0 {
			l.fate = "was ended by a " + cmd.ProcessState.String() // signal: killed
		}
		close(l.died)
	}()
	return l, nil
}

// End ends the program if it has not ended, and waits for that.
func (l *Line) End() {
	select {
	case <-l.died:
	default:
		l.kill()
		<-l.died
	}
}
