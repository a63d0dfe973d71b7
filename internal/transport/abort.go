package transport

import "fmt"

// Report is the cause of an abort as another rank has told it. A network whose
// Abort is given a Report tells it on as what it is, so that the cause reads the
// same on every rank, whichever way it has taken.
type Report struct {
	Rank int    // the rank on which it was latched first
	Text string // what it was there
}

func (r *Report) Error() string { return fmt.Sprintf("%s (reported by rank %d)", r.Text, r.Rank) }
