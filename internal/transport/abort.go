package transport

import "fmt"

// Report is the cause of an abort in the words of another rank. A network whose Abort is given a Report passes it on
// unchanged, so the cause reads the same on every rank, whichever way it has come.
type Report struct {
	Rank int    // the rank on which it was latched first
	Text string // what it was there
}

func (r *Report) Error() string { return fmt.Sprintf("%s (reported by rank %d)", r.Text, r.Rank) }
