package transport

import "fmt"

// Report is the cause of an abort in the words of another rank. A network whose Abort gets a Report passes it on
// unchanged, so every rank reads the same cause, whichever way the Report has come.
type Report struct {
	Rank int    // the rank on which it was latched first
	Text string // the cause in that rank's words
}

func (r *Report) Error() string { return fmt.Sprintf("%s (reported by rank %d)", r.Text, r.Rank) }
