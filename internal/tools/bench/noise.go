package bench

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/load"
)

// mostOthers is the fraction of a machine's cores that other programs may use without a mark on the figures.
const mostOthers = 0.25

// noise says why the run's figures are not fit for comparison. cores are those of the whole machine, because Others
// counts all programs on it.
func (r *Report) noise(cores int) (why []string) {
	m := r.Machine
	if m.Others > mostOthers*float64(cores) {
		why = append(why, fmt.Sprintf("other programs used %.1f of %s between the rounds: measure again when the "+
			"machine is idle", m.Others, load.Cores(cores)))
	}
	if r.Ranks > m.Usable {
		why = append(why, fmt.Sprintf("%d ranks shared %s: their times are those of ranks that wait for a core",
			r.Ranks, load.Cores(m.Usable)))
	}
	return why
}
