// Package ending is how a job ends: when the processes that are left are signalled, which failure made the others fail,
// and which exit code that makes. It is the same for jobs with fixed ranks, for elastic ones, and for the part of a job
// that an agent or a node's launcher runs.
//
// State is pure: events in, actions out. It has no clock, no processes and no output. Whoever runs a job tells it what
// happens, carries its actions out, and calls Tick at the time that Next names.
//
//	         a failure (unless the job survives it),
//	         a signal, Stop                            time            time        time
//	Running ────────────────────────────────▶ Asked ─────▶ Terminated ────▶ Killed ────▶ LeftBehind
//	   │                                        │              ▲ │             ▲
//	   └──── a process cannot start, HangUp ────┴──────────────┘ └─────────────┤
//	                                                                           │
//	any stage ──────────────────────────── a second signal ────────────────────┘
//
// The job is over when no process is left (Gone), or when nothing waits for those that are left (LeftBehind).
//
// An agent, and a node's launcher that node 0 leads, use a State for the part of the job on their host (Terms.Led). It
// has the same stages, and the same rule for signals, but others do the work:
//
//	Running ───────────── a notice, or a signal to leave ──▶ Asked: the job's launcher ends the processes
//	Running, Asked ────── that launcher is gone ───────────▶ Terminated: the processes' supervisors end them
//	Running ───────────── a signal of another kind ────────▶ Terminated
//	Asked ─────────────── a second signal ─────────────────▶ Killed
//	Terminated, Killed ── time ────────────────────────────▶ LeftBehind
package ending

import (
	"slices"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Stage is how far the end of the processes that are left has come.
type Stage int

const (
	Running    Stage = iota
	Asked            // they have time to end by themselves
	Terminated       // SIGTERM was sent
	Killed           // SIGKILL was sent
	LeftBehind       // they cannot be killed, or are left to their supervisors (Terms.Led)
)

func (s Stage) String() string {
	return [...]string{"running", "asked", "terminated", "killed", "left behind"}[s]
}

// Terms are the rules of a job's end.
type Terms struct {
	// Asked, Terminated and Killed are how long these stages take.
	Asked, Terminated, Killed time.Duration
	// Survives: a failure alone does not end the job. Whoever decides that it ends calls Stop.
	Survives bool
	// Led: the processes are the part of a job on one host. The job's launcher, on another host, leads it, and decides
	// when a host that leaves is done: Asked has no limit. Each process has a supervisor, which terminates and kills it
	// after Release.
	Led bool
	// News is how long to wait, after the first failure, for news that is under way: the first failure is told by the
	// time of the events, not of their arrival. Not used if Survives.
	News time.Duration
}

// State is how far a job's end has come. One goroutine uses it.
type State struct {
	terms  Terms
	stage  Stage
	living map[int]bool
	leaves []syscall.Signal // with which the host leaves the job, which goes on; only if terms.Led

	due         time.Time      // when the next stage begins; zero: never
	asked       time.Time      // when the first signal was sent; zero: none was
	interrupted syscall.Signal // the first signal to the launcher; 0: none
	hurried     bool
	unstartable bool

	failures  []Failure           // in order of arrival
	others    bool                // at the first failure, other processes were left
	collect   time.Time           // when reports of failures are to be collected; zero: not now
	collected bool                // they were
	first     *rendezvous.Failure // what a rank reported before the failures; nil: nothing
	announced bool
}

// New is the State of a job that has no processes yet.
func New(terms Terms) *State { return &State{terms: terms, living: map[int]bool{}} }

// Started: a process of this number begins to start.
func (s *State) Started(id int) { s.living[id] = true }

// Gone: nothing is left of a process.
func (s *State) Gone(id int) { delete(s.living, id) }

// Left is how many processes are left.
func (s *State) Left() int { return len(s.living) }

// Lives reports whether something is left of a process.
func (s *State) Lives(id int) bool { return s.living[id] }

// Stage is the present stage.
func (s *State) Stage() Stage { return s.stage }

// Interrupted is the first signal to the launcher; SIGPIPE if the output has lost its reader before, and SIGTERM if a
// notice came before; 0 if none came.
func (s *State) Interrupted() syscall.Signal { return s.interrupted }

// Hurried reports that a second signal has come: nothing waits for readers of the output any more.
func (s *State) Hurried() bool { return s.hurried }

// Over reports whether no process is left that could still end.
func (s *State) Over() bool { return len(s.living) == 0 || s.stage == LeftBehind }

// Next is when Tick is to be called next. ok is false if time changes nothing.
func (s *State) Next() (at time.Time, ok bool) {
	at = s.due
	if at.IsZero() || !s.collect.IsZero() && s.collect.Before(at) {
		at = s.collect
	}
	return at, !at.IsZero()
}

// Collects is when the reports of failures are to be collected, if they are and have not been.
func (s *State) Collects() (at time.Time, ok bool) { return s.collect, !s.collect.IsZero() }

// Tick: time has passed.
func (s *State) Tick(now time.Time) (out []Action) {
	if !s.collect.IsZero() && !now.Before(s.collect) {
		s.collect = time.Time{}
		return []Action{Collect{}}
	}
	if !s.due.IsZero() && !now.Before(s.due) {
		if s.terms.Led {
			return s.enter(now, LeftBehind) // the supervisors kill
		}
		return s.enter(now, s.stage+1)
	}
	return nil
}

// Failed: a process has ended, and has failed. What comes after a signal to the launcher, or after a process that could
// not start, is a consequence of that.
func (s *State) Failed(now time.Time, f Failure) (out []Action) {
	if s.unstartable || s.interrupted != 0 && len(s.failures) == 0 {
		return nil
	}
	s.failures = append(s.failures, f)
	if s.terms.Survives {
		return nil
	}
	if len(s.failures) == 1 {
		s.others = len(s.living) > 1
		s.collect = now.Add(s.terms.News)
		if s.stage == Running {
			out = s.enter(now, Asked)
		}
	}
	if s.collected {
		out = append(out, s.announce(false)...)
	}
	return out
}

// CannotStart: a process could not be started.
func (s *State) CannotStart(now time.Time) []Action {
	s.unstartable = true
	return s.terminate(now)
}

// HangUp: the job's output has lost its reader.
func (s *State) HangUp(now time.Time) []Action {
	if s.interrupted == 0 {
		s.interrupted = syscall.SIGPIPE
	}
	return s.terminate(now)
}

func (s *State) terminate(now time.Time) []Action {
	if s.stage >= Terminated {
		return nil
	}
	return s.enter(now, Terminated)
}

// Stop: the job is to end, and its processes know.
func (s *State) Stop(now time.Time) []Action {
	if s.stage != Running {
		return nil
	}
	return s.enter(now, Asked)
}

// Interrupt: the launcher, or the agent, has got a signal. The first one is passed on, and ends the job, or this host's
// part of it; the second one kills.
func (s *State) Interrupt(now time.Time, sig syscall.Signal) (out []Action) {
	if s.interrupted != 0 {
		s.hurried = true
		if s.terms.Led {
			return s.release(now, Killed, sig)
		}
		return s.enter(now, Killed)
	}
	s.interrupted = sig
	switch {
	case slices.Contains(s.leaves, sig):
		return s.depart(now, Depart{Signal: sig})
	case s.terms.Led:
		return s.release(now, Terminated, sig)
	}
	out = s.pass(now, sig, "passing "+rendezvous.SignalName(int(sig))+" on to the processes")
	if s.stage < Terminated {
		out = append(out, s.enter(now, Asked)...)
	}
	return out
}

// Late: the launcher has got a signal after all processes had ended.
func (s *State) Late(sig syscall.Signal) {
	if s.interrupted == 0 {
		s.interrupted = sig
	}
}

// enter begins a stage.
func (s *State) enter(now time.Time, stage Stage) (out []Action) {
	s.stage, s.due = stage, time.Time{}
	switch stage {
	case Asked:
		if !s.terms.Led {
			s.due = now.Add(s.terms.Asked)
		}
	case Terminated:
		s.due = now.Add(s.terms.Terminated)
		if s.terms.Led {
			return nil
		}
		if s.collected {
			out = s.announce(true) // SIGTERM comes now, so no process ends by itself any more
		}
		out = append(out, s.pass(now, syscall.SIGTERM, "terminating the processes that are left")...)
	case Killed:
		out = s.pass(now, syscall.SIGKILL, "killing the processes that are left")
		s.due = now.Add(s.terms.Killed)
	case LeftBehind:
		if !s.terms.Led {
			out = []Action{LeaveBehind{}}
		}
	}
	return out
}

func (s *State) pass(now time.Time, sig syscall.Signal, why string) []Action {
	if s.asked.IsZero() {
		s.asked = now
	}
	return []Action{Pass{sig, why}}
}
