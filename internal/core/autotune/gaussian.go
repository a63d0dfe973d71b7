package autotune

import (
	"errors"
	"math"
)

// process is a Gaussian process with a squared exponential kernel, conditioned
// on scores at points of the unit cube. Scores are standardised inside.
type process struct {
	at          [][]float64
	length      float64   // of the kernel, in units of the cube
	chol        cholesky  // of the kernel matrix K
	weights     []float64 // K⁻¹ y
	mean, scale float64   // of the scores
	best        float64   // the greatest score, standardised
}

// lengths are the kernel lengths among which the likelihood chooses.
var lengths = []float64{0.1, 0.15, 0.25, 0.4, 0.7, 1.2}

// jitter keeps the kernel matrix positive definite if points coincide.
const jitter = 1e-8

var errNotDefinite = errors.New("autotune: the kernel matrix is not positive definite")

// condition fits a process to the scores at the points, of which there is at least one. variances are the variances of
// the scores' errors.
func condition(at [][]float64, scores, variances []float64) (*process, error) {
	p := &process{at: at}
	p.mean = mean(scores)
	p.scale = math.Sqrt(variance(scores))
	if !(p.scale > 0) {
		p.scale = max(1e-12, math.Abs(p.mean)) // one score, or all are equal
	}
	y := make([]float64, len(scores))
	noise := make([]float64, len(scores))
	p.best = math.Inf(-1)
	for i, s := range scores {
		y[i] = (s - p.mean) / p.scale
		noise[i] = variances[i]/(p.scale*p.scale) + jitter
		p.best = max(p.best, y[i])
	}
	likeliest := math.Inf(-1)
	for _, length := range lengths {
		var fit process
		if !fit.factor(at, length, y, noise) {
			continue
		}
		// log p(y) = -½ yᵀK⁻¹y - ½ log|K|, less a constant
		if l := -dot(y, fit.weights)/2 - fit.chol.logDet()/2; l > likeliest {
			likeliest = l
			p.length, p.chol, p.weights = length, fit.chol, fit.weights
		}
	}
	if math.IsInf(likeliest, -1) {
		return nil, errNotDefinite
	}
	return p, nil
}

func (p *process) factor(at [][]float64, length float64, y, noise []float64) (ok bool) {
	p.chol, ok = factorize(len(at), func(i, j int) float64 {
		if i == j {
			return 1 + noise[i]
		}
		return kernel(at[i], at[j], length)
	})
	if ok {
		p.weights = p.chol.solve(y)
	}
	return ok
}

func kernel(a, b []float64, length float64) float64 {
	d := 0.0
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
	}
	return math.Exp(-d / (2 * length * length))
}

// predict returns the score that p expects at x, standardised, and its deviation.
func (p *process) predict(x []float64) (mean, deviation float64) {
	k := make([]float64, len(p.at))
	for i, a := range p.at {
		k[i] = kernel(a, x, p.length)
	}
	return dot(k, p.weights), math.Sqrt(max(0, 1-dot(k, p.chol.solve(k))))
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func mean(of []float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(len(of))
}

// variance returns the sample variance; NaN of one value.
func variance(of []float64) float64 {
	m, sum := mean(of), 0.0
	for _, v := range of {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(of)-1)
}
