package bench

import "slices"

// Stat summarizes samples: seconds of one operation, or bytes per second.
type Stat struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
}

// newStat sorts samples, of which there must be at least one.
func newStat(samples []float64) Stat {
	slices.Sort(samples)
	return Stat{len(samples), quantile(samples, 0.5), quantile(samples, 0.1), quantile(samples, 0.9)}
}

// quantile interpolates linearly between the two nearest of the sorted samples.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	part := at - float64(i)
	return sorted[i]*(1-part) + sorted[i+1]*part
}

// mostSpread is how many times as long as the fastest tenth of the operations the slowest tenth may take. On an idle
// machine of two cores it is up to 8 times for the smallest tensors, whose ranks spin or sleep.
const mostSpread = 10

// noisy reports whether the samples differ so much that their median says little.
func (s Stat) noisy() bool { return s.P90 > mostSpread*s.P10 }

// rate turns seconds for an amount into amounts per second. So slow times become low rates.
func (s Stat) rate(amount float64) Stat {
	return Stat{s.N, amount / s.Median, amount / s.P90, amount / s.P10}
}
