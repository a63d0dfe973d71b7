package flight

import "fmt"

// Silent is a process of a job that does not answer, or whose answer is too long.
type Silent struct {
	PID int
	// Rank is -1 where it is not known.
	Rank int
	// Stopped says that the process was stopped, by SIGSTOP or a debugger.
	Stopped bool
	// TooLong says that it answers with more records than are read.
	TooLong bool
	// Owner is the user to whom the process belongs, where that is another: ranks tell
	// their own user and root only.
	Owner string
}

// Why says why it does not answer, as far as that is known.
func (s Silent) Why() string {
	if s.Owner != "" {
		return fmt.Sprintf("its process %d belongs to user %s, and tells only this user and root: ask as one of "+
			"them, with sudo for instance", s.PID, s.Owner)
	}
	if s.TooLong {
		return fmt.Sprintf("its process %d has too many records to read: with a smaller GOROVOD_FLIGHT_RECORDS it "+
			"keeps fewer", s.PID)
	}
	if s.Stopped {
		return fmt.Sprintf("its process %d is stopped", s.PID)
	}
	return fmt.Sprintf("its process %d may hang", s.PID)
}

// identify gives the one process whose rank is not known the one rank that is left.
func identify(silent []Silent, missing []int) []Silent {
	if len(silent) != 1 || len(missing) != 1 || silent[0].Rank >= 0 {
		return silent
	}
	s := silent[0]
	s.Rank = missing[0]
	return []Silent{s}
}
