package autotune

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/optimize"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// margin is the least expected gain that counts as an improvement, in standard deviations of the scores; as in
	// Horovod.
	margin   = 0.01
	restarts = 25
)

// improvement returns the expected improvement at x over the best score.
func (p *process) improvement(x []float64) float64 {
	mean, deviation := p.predict(x)
	gain := mean - p.best - margin
	if deviation < 1e-9 {
		return max(0, gain)
	}
	z := gain / deviation
	return gain*distuv.UnitNormal.CDF(z) + deviation*distuv.UnitNormal.Prob(z)
}

// mostPromising returns the point of the unit cube with the greatest expected improvement. It searches from several
// random places.
func (p *process) mostPromising(random *rand.Rand) []float64 {
	dims := len(p.at[0])
	inside := make([]float64, dims)
	problem := optimize.Problem{Func: func(x []float64) float64 {
		outside := 0.0
		for i, v := range x {
			inside[i] = min(max(v, 0), 1)
			outside += math.Abs(v - inside[i])
		}
		return outside - p.improvement(inside)
	}}
	settings := &optimize.Settings{FuncEvaluations: 60 * dims, Concurrent: 1, Converger: &optimize.FunctionConverge{
		Absolute: 1e-6, Iterations: 10 * dims}}
	var best []float64
	least := math.Inf(1)
	for range restarts {
		start := make([]float64, dims)
		for i := range start {
			start[i] = random.Float64()
		}
		r, err := optimize.Minimize(problem, start, settings, &optimize.NelderMead{SimplexSize: 0.1})
		if r == nil || err != nil && r.X == nil {
			continue
		}
		if r.F < least {
			least, best = r.F, r.X
		}
	}
	if best == nil {
		best = make([]float64, dims)
		for i := range best {
			best[i] = random.Float64()
		}
	}
	for i := range best {
		best[i] = min(max(best[i], 0), 1)
	}
	return best
}
