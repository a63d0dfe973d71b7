package flight

import "fmt"

// Silent is a process of a job that does not answer, or whose answer is too long.
type Silent struct {
	PID int
	// Rank is -1 if it is not known.
	Rank int
	// Stopped: SIGSTOP or a debugger has stopped the process.
	Stopped bool
	// TooLong: the process answers with more records than are read.
	TooLong bool
	// Owner is the user who owns the process, if it is another user: ranks answer only their own user and root.
	Owner string
}

// Why says why the process does not answer, as far as that is known.
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

// identify: if one process has an unknown rank and one rank is left, the process has that rank.
func identify(silent []Silent, missing []int) []Silent {
	if len(silent) != 1 || len(missing) != 1 || silent[0].Rank >= 0 {
		return silent
	}
	s := silent[0]
	s.Rank = missing[0]
	return []Silent{s}
}
