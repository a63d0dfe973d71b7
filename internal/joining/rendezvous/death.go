package rendezvous

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Linux has signals with names, and real-time signals.
const (
	lastNamedSignal     = 31
	firstRealTimeSignal = 34
	lastSignal          = 64
)

// Death says how the process of one rank ended. It is also an error: errors.As finds it in the failures that the death
// caused.
type Death struct {
	Rank int
	Host string
	// PID is the process that the launcher started; 0 if it is not known. A rank under a wrapper has joined with
	// another PID.
	PID int
	// Signal is the signal that killed it; 0 if it exited by itself.
	Signal int
	// ExitCode is meaningful if Signal is 0.
	ExitCode int
	// InOrder: it left properly (Session.Close) and exited with code 0. The server sets it.
	InOrder bool `json:",omitempty"`
	// Lost says why the launcher has lost the host. Then nobody knows how the process ended. Otherwise empty.
	Lost string `json:",omitempty"`
	// Told describes the end in words, if the program that started the process knows nothing more exact: "was killed by
	// Ray, …". Otherwise empty.
	Told string `json:",omitempty"`
	// Apart says why the process, which still lives, could not join the others. Otherwise empty.
	Apart string `json:",omitempty"`
	// Stderr holds the last lines of its stderr, without a newline at the end.
	Stderr string `json:",omitempty"`
	// Reason is what the rank itself reported (Session.Report). The server sets it.
	Reason string `json:",omitempty"`
	// NeverJoined says that the process ended before it came to the rendezvous. The server sets it.
	NeverJoined bool `json:",omitempty"`
	// At is when the process ended, by this host's clock. If it is zero, the server sets the time of the news.
	At time.Time `json:"-"`
}

// Failed is false for a process that exited with code 0.
func (d Death) Failed() bool {
	return d.Signal != 0 || d.ExitCode != 0 || d.Lost != "" || d.Told != "" || d.Apart != ""
}

// String is one line: which rank, and how it ended. It contains neither Stderr nor Reason.
func (d Death) String() string {
	return fmt.Sprintf("rank %d %s %s", d.Rank, d.Where(), d.How())
}

// Where says on which host the process ran, and its PID if that is known: it is not if the process did not start.
func (d Death) Where() string {
	if d.PID == 0 {
		return "on host " + d.Host
	}
	return fmt.Sprintf("on host %s (pid %d)", d.Host, d.PID)
}

// How says how the process ended, such as "exited with code 1".
func (d Death) How() string {
	before := ""
	if d.NeverJoined {
		before = " before hvd.init()"
	}
	switch {
	case d.Lost != "":
		return fmt.Sprintf("is lost with its host: %s%s", d.Lost, before)
	case d.Told != "":
		return d.Told + before
	case d.Apart != "":
		return "could not join the others: " + d.Apart
	case d.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%s)%s", d.Signal, SignalName(d.Signal), before)
	}
	return fmt.Sprintf("exited with code %d%s%s", d.ExitCode, d.passedOn(), before)
}

// passedOn names the signal n of an exit code 128+n. A shell exits with this code if its command was killed, and a rank
// may run under a shell.
func (d Death) passedOn() string {
	n := d.ExitCode - 128
	// The C library uses the two signals below its first real-time signal itself.
	if n < 1 || n > lastSignal || (n > lastNamedSignal && n < firstRealTimeSignal) {
		return ""
	}
	return fmt.Sprintf(" (128+%d: %s)", n, SignalName(n))
}

// Error is String with the rank's Reason.
func (d Death) Error() string {
	if d.Reason == "" {
		return d.String()
	}
	return d.String() + "; it had reported: " + d.Reason
}

// SignalName is "SIGKILL" for 9; real-time signals have only a number.
func SignalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
