package ending

import (
	"fmt"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Action is something for whoever runs the job to do. Its String is for transcripts.
type Action interface{ fmt.Stringer }

// Pass sends a signal to all processes that are left. Why says so to a user who asked for details.
type Pass struct {
	Signal syscall.Signal
	Why    string
}

func (a Pass) String() string { return rendezvous.SignalName(int(a.Signal)) + " to all: " + a.Why }

// Collect waits, for a short time, for the reports of processes that have ended. Call Collected afterwards.
type Collect struct{}

func (Collect) String() string { return "collect the reports" }

// Announce tells the user of the failure that made the others fail.
type Announce struct {
	Failure Failure
	// Because is the rank that others reported first, if that rank's own end is no failure, or has not come; else -1.
	Because int
	// Others: other processes are left, and have the time of the stage Asked to end by themselves.
	Others bool
}

func (a Announce) String() string {
	text := fmt.Sprintf("announce: %v", a.Failure)
	if a.Because >= 0 {
		text += fmt.Sprintf(", because of rank %d", a.Because)
	}
	if a.Others {
		text += "; the others may end by themselves"
	}
	return text
}

// Depart tells the launcher that leads the job that this host leaves it, by a signal or by a notice.
type Depart struct {
	Signal syscall.Signal // 0 for a notice
	Notice string         // its words
}

func (a Depart) String() string {
	if a.Signal != 0 {
		return "depart: " + rendezvous.SignalName(int(a.Signal))
	}
	return "depart: " + a.Notice
}

// Release leaves the processes of this host to their supervisors, which end them. If a signal is the reason, tell the
// launcher that leads the job before; else it knows, or is gone.
type Release struct{ Signal syscall.Signal }

func (a Release) String() string {
	if a.Signal != 0 {
		return "release the processes: " + rendezvous.SignalName(int(a.Signal))
	}
	return "release the processes"
}

// LeaveBehind names the processes that cannot be killed to the user.
type LeaveBehind struct{}

func (LeaveBehind) String() string { return "leave behind what cannot be killed" }
