package autotune

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// process is a Gaussian process with a squared exponential kernel, conditioned
// on scores at points of the unit cube. Scores are standardised inside.
type process struct {
	at          [][]float64
	length      float64 // of the kernel, in units of the cube
	chol        mat.Cholesky
	weights     mat.VecDense // K⁻¹ y
	mean, scale float64      // of the scores
	best        float64      // the greatest score, standardised
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
	p.mean, p.scale = stat.MeanStdDev(scores, nil)
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
		if l := -mat.Dot(mat.NewVecDense(len(y), y), &fit.weights)/2 - fit.chol.LogDet()/2; l > likeliest {
			likeliest = l
			p.length, p.chol, p.weights = length, fit.chol, fit.weights
		}
	}
	if math.IsInf(likeliest, -1) {
		return nil, errNotDefinite
	}
	return p, nil
}

func (p *process) factor(at [][]float64, length float64, y, noise []float64) bool {
	k := mat.NewSymDense(len(at), nil)
	for i := range at {
		for j := range i {
			k.SetSym(i, j, kernel(at[i], at[j], length))
		}
		k.SetSym(i, i, 1+noise[i])
	}
	return p.chol.Factorize(k) && p.chol.SolveVecTo(&p.weights, mat.NewVecDense(len(y), y)) == nil
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
	k := mat.NewVecDense(len(p.at), nil)
	for i, a := range p.at {
		k.SetVec(i, kernel(a, x, p.length))
	}
	var solved mat.VecDense
	if p.chol.SolveVecTo(&solved, k) != nil {
		return 0, 0
	}
	return mat.Dot(k, &p.weights), math.Sqrt(max(0, 1-mat.Dot(k, &solved)))
}
