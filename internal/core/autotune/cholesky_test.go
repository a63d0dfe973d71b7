package autotune

import (
	"math"
	"testing"
)

func TestCholesky(t *testing.T) {
	k := [][]float64{{4}, {2, 10}, {-2, 5, 14}} // its L: 2; 1, 3; -1, 2, 3
	l, ok := factorize(len(k), func(i, j int) float64 { return k[i][j] })
	if !ok {
		t.Fatal("a positive definite matrix is refused")
	}
	for i, row := range [][]float64{{2}, {1, 3}, {-1, 2, 3}} {
		for j, want := range row {
			if math.Abs(l[i][j]-want) > 1e-12 {
				t.Errorf("L[%d][%d] is %g, not %g", i, j, l[i][j], want)
			}
		}
	}
	if got, want := l.logDet(), math.Log(4*9*9); math.Abs(got-want) > 1e-12 {
		t.Errorf("log |K| is %g, not %g", got, want)
	}
	x := l.solve([]float64{4*1 + 2*2 - 2*3, 2*1 + 10*2 + 5*3, -2*1 + 5*2 + 14*3})
	for i, want := range []float64{1, 2, 3} {
		if math.Abs(x[i]-want) > 1e-12 {
			t.Errorf("x[%d] is %g, not %g", i, x[i], want)
		}
	}
	if _, ok := factorize(2, func(_, _ int) float64 { return 1 }); ok {
		t.Error("a singular matrix is factorized")
	}
}

// In one dimension, with scores of a parabola at three points, the point of the greatest expected improvement lies
// near the top of the parabola, and the search finds what a fine grid finds.
func TestMostPromising(t *testing.T) {
	at := [][]float64{{0.1}, {0.5}, {0.9}}
	scores, errs := make([]float64, len(at)), make([]float64, len(at))
	for i, x := range at {
		scores[i] = -(x[0] - 0.7) * (x[0] - 0.7)
	}
	p, err := condition(at, scores, errs)
	if err != nil {
		t.Fatal(err)
	}
	grid, most := 0.0, math.Inf(-1)
	for i := range 10001 {
		if e := p.improvement([]float64{float64(i) / 10000}); e > most {
			grid, most = float64(i)/10000, e
		}
	}
	x := p.mostPromising(random(1))
	if got := p.improvement(x); got < most*(1-1e-3) {
		t.Errorf("the search finds %g at %g; the grid finds %g at %g", got, x, most, grid)
	}
	if math.Abs(x[0]-0.7) > 0.15 {
		t.Errorf("the most promising point is %g, far from the top at 0.7", x)
	}
}
