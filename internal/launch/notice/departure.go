package notice

import (
	"os"
	"syscall"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// LeaveVariable is --leave-on as a variable.
const LeaveVariable = "GOROVOD_LEAVE_ON"

// departing are the signals with which a node leaves its job.
var departing = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}

// Departure is what asks this node to leave the job: signals, and a notice. Whoever serves the job at the time receives
// them, and has an ending.State decide.
type Departure struct {
	Signals <-chan os.Signal
	Notices <-chan string // gets the words of the notice, once
}

// Watch catches signals until the launcher ends, and looks for the notice at where, unless that is empty. say gets
// lines for the user.
func Watch(where string, say func(text string)) *Departure {
	signals, notices := make(chan os.Signal, 4), make(chan string, 1)
	var wanted []os.Signal
	for _, sig := range departing {
		wanted = append(wanted, sig)
	}
	spawn.Notify(wanted, signals)
	if where != "" {
		go func() { notices <- Await(where, say) }()
	}
	return &Departure{Signals: signals, Notices: notices}
}

// Ending is how this node's part of the job ends, from the beginning. A node that leaves exits as if the signal had
// killed it, so that nobody takes its work for done.
func (d *Departure) Ending() *ending.State {
	s := ending.New(spawn.LedTerms)
	s.MayLeave(departing...)
	return s
}
