package autotune

import "math"

// cholesky is the lower triangle L of a positive definite matrix K = L Lᵀ: row i has i+1 elements.
type cholesky [][]float64

// factorize factorizes the symmetric matrix of n rows whose lower triangle is k(i, j), j ≤ i. It reports whether the
// matrix is positive definite.
func factorize(n int, k func(i, j int) float64) (l cholesky, ok bool) {
	l = make(cholesky, n)
	for i := range l {
		l[i] = make([]float64, i+1)
		for j := range i {
			l[i][j] = (k(i, j) - dot(l[j][:j], l[i][:j])) / l[j][j]
		}
		square := k(i, i) - dot(l[i][:i], l[i][:i])
		if !(square > 0) {
			return nil, false
		}
		l[i][i] = math.Sqrt(square)
	}
	return l, true
}

// solve returns x with K x = b.
func (l cholesky) solve(b []float64) []float64 {
	x := make([]float64, len(b))
	for i := range l { // L y = b
		x[i] = (b[i] - dot(l[i][:i], x[:i])) / l[i][i]
	}
	for i := len(l) - 1; i >= 0; i-- { // Lᵀ x = y
		x[i] /= l[i][i]
		for j := range i {
			x[j] -= l[i][j] * x[i]
		}
	}
	return x
}

// logDet returns log |K|.
func (l cholesky) logDet() float64 {
	sum := 0.0
	for i := range l {
		sum += 2 * math.Log(l[i][i])
	}
	return sum
}
