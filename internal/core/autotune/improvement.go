package autotune

import (
	"math"
	"math/rand/v2"
)

const (
	// margin is the least expected gain that counts as an improvement, in standard deviations of the scores; as in
	// Horovod.
	margin   = 0.01
	restarts = 25
	// The search takes steps of firstStep at first, in units of the cube, and none below lastStep.
	firstStep, lastStep = 0.1, 1e-4
)

// improvement returns the expected improvement at x over the best score.
func (p *process) improvement(x []float64) float64 {
	mean, deviation := p.predict(x)
	gain := mean - p.best - margin
	if deviation < 1e-9 {
		return max(0, gain)
	}
	z := gain / deviation
	cumulative, density := math.Erfc(-z/math.Sqrt2)/2, math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
	return gain*cumulative + deviation*density
}

// mostPromising returns the point of the unit cube with the greatest expected improvement. It searches from several
// random places.
func (p *process) mostPromising(random *rand.Rand) []float64 {
	var best []float64
	most := math.Inf(-1)
	for range restarts {
		x := make([]float64, len(p.at[0]))
		for i := range x {
			x[i] = random.Float64()
		}
		if found := p.climb(x); found > most {
			most, best = found, x
		}
	}
	return best
}

// climb moves x to a local maximum of the expected improvement, and returns the improvement there. It is a compass
// search: it tries a step in both directions of each axis, and halves the step once none is better.
func (p *process) climb(x []float64) float64 {
	most := p.improvement(x)
	for step := firstStep; step >= lastStep; {
		better := false
		for i := range x {
			for _, move := range [2]float64{step, -step} {
				before := x[i]
				x[i] = min(max(before+move, 0), 1)
				if found := p.improvement(x); found > most {
					most, better = found, true
				} else {
					x[i] = before
				}
			}
		}
		if !better {
			step /= 2
		}
	}
	return most
}
