package ending

import (
	"syscall"
	"time"
)

// The events of one host's part of a job (Terms.Led), besides Interrupt, Started, Gone and Tick.

// MayLeave: with these signals, too, the processes of this host leave the job, which goes on without the host.
func (s *State) MayLeave(on ...syscall.Signal) { s.leaves = append(s.leaves, on...) }

// Leave: a notice says that this host is to leave the job. It counts as a SIGTERM that may come once.
func (s *State) Leave(now time.Time, notice string) []Action {
	if s.interrupted != 0 {
		return nil
	}
	s.interrupted = syscall.SIGTERM
	return s.depart(now, Depart{Notice: notice})
}

func (s *State) depart(now time.Time, d Depart) []Action {
	if s.stage >= Terminated {
		return nil // the host's part ends anyway
	}
	return append(s.enter(now, Asked), d)
}

// Cut: the launcher that leads the job is gone, or wants nothing more of this host.
func (s *State) Cut(now time.Time) []Action { return s.release(now, Terminated, 0) }

// release begins a stage in which supervisors end the processes, unless it has begun.
func (s *State) release(now time.Time, stage Stage, sig syscall.Signal) []Action {
	if s.stage >= stage {
		return nil
	}
	return append(s.enter(now, stage), Release{sig})
}
