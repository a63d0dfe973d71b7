package reduce

import "github.com/gorovod/gorovod/internal/base/tensor"

// dotSums is the number of sums of which each dot product consists.
const dotSums = 16

// dots are the sums of x·y, x·x and y·y, in the assembly's layout: element i is added to sum i modulo dotSums.
type dots [3][dotSums]float64

// Dots returns the dot products x·y, x·x and y·y of floats, in float64. Each consists of dotSums sums, to which the
// elements are added in turn. Then the sums are added in pairs, the farthest apart first. So the bits depend only on
// the elements. x and y have the same length, and need no alignment.
func Dots(dt tensor.DType, x, y []byte) (xy, xx, yy float64) {
	return dotsWith(best, dt, x, y)
}

func dotsWith(v variant, dt tensor.DType, x, y []byte) (xy, xx, yy float64) {
	n := checkPair("dot product", dt, x, y)
	var d dots
	done := 0
	if v != portable {
		done = n &^ (wideElements - 1)
		step := callBytes / 2 / dt.Size()
		srcs := [2][]byte{x, y}
		for at := 0; at < done; at += step {
			dotRange(v, dotKernels[dt], &d, srcs[:], at, min(at+step, done))
		}
	}
	dotsPortable(&d, dt, x[done*dt.Size():], y[done*dt.Size():])
	return d.total(0), d.total(1), d.total(2)
}

// dotsPortable adds the products of x and y to d. The conversions keep the compiler
// from fusing products with sums, which would round differently on other processors.
func dotsPortable(d *dots, dt tensor.DType, x, y []byte) {
	var xBlock, yBlock [blockLen]float64
	for len(x) > 0 {
		n := min(blockLen, len(x)/dt.Size())
		xs, ys := xBlock[:n], yBlock[:n]
		loadDoubles(dt, xs, x)
		loadDoubles(dt, ys, y)
		for i, u := range xs {
			v := ys[i]
			d[0][i%dotSums] += float64(u * v)
			d[1][i%dotSums] += float64(u * u)
			d[2][i%dotSums] += float64(v * v)
		}
		x, y = x[n*dt.Size():], y[n*dt.Size():]
	}
}

// total adds up one product's sums, and overwrites them.
func (d *dots) total(k int) float64 {
	s := &d[k]
	for n := dotSums / 2; n > 0; n /= 2 {
		for i := range n {
			s[i] += s[n+i]
		}
	}
	return s[0]
}
