package reduce

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Near these factors something changes: the value to which a product is rounded, whether it leaves its type or an
// int32, or the kernels that can be used.
var meanFactors = []float64{0.5, 0.25, 1.0 / 128, 1.0 / (1 << 14), 1.0 / (1 << 15), 1.0 / (1 << 16), 1.0 / 3, 1.0 / 7,
	1.0 / 49, 1.0 / 1000, 0.7, math.Nextafter(1, 0), 1.5, -1, -0.3, math.Nextafter(-1, 0), 127.5, 32767,
	math.Nextafter(32768, 0), 32768, 65536, 1 << 40, 0, math.Copysign(0, -1), 1e-300, 5e-324, math.Inf(1), math.NaN()}

var integers = []tensor.DType{tensor.Uint8, tensor.Int8, tensor.Uint16, tensor.Int16, tensor.Int32, tensor.Int64}

// Each number of one or two bytes, times each factor; as a scale, and as the mean of two.
func TestEachSmallIntegerIsScaledRightly(t *testing.T) {
	for _, dt := range integers[:4] {
		size := dt.Size()
		all, zeros := aligned(size<<16, 0), aligned(size<<16, 0)
		for i := range 1 << 16 {
			putElement(all[size*i:size*(i+1)], uint64(i)&(1<<(8*size)-1))
		}
		for _, factor := range meanFactors {
			want := make([]byte, len(all))
			reducePortable(dt, tensor.Sum, want, [][]byte{all}, factor)
			for _, v := range variants() {
				for _, srcs := range [][][]byte{{all}, {all, zeros}, {zeros, all, zeros}} {
					got := make([]byte, len(all))
					reduceWith(v, dt, tensor.Sum, got, srcs, factor)
					requireEqual(t, dt, fmt.Sprintf("%v, %d sources × %v", v, len(srcs), factor), got, want, srcs)
				}
			}
		}
	}
}

func TestMeansOfIntegersAgree(t *testing.T) {
	rnd := source(t)
	for _, dt := range integers {
		for _, factor := range meanFactors {
			srcs := make([][]byte, 1+rnd.IntN(4))
			n := tableLeast + wideElements + rnd.IntN(200)
			for i := range srcs {
				srcs[i] = fill(rnd, dt, n, rnd.IntN(64))
			}
			checkVariants(t, dt, tensor.Sum, srcs, factor, rnd.IntN(64))
			want := make([]byte, n*dt.Size())
			reduceWith(portable, dt, tensor.Sum, want, srcs, factor)
			for _, v := range variants() {
				mine := append([][]byte(nil), srcs...)
				last := len(mine) - 1
				mine[last] = bytes.Clone(srcs[last])
				reduceWith(v, dt, tensor.Sum, mine[last], mine, factor)
				requireEqual(t, dt, fmt.Sprintf("%v × %v in place", v, factor), mine[last], want, srcs)
			}
		}
	}
}

// A kernel without limits must not be used where a product can be outside them.
func TestStaysInside(t *testing.T) {
	for dt, largest := range map[tensor.DType]float64{tensor.Uint16: math.MaxUint16, tensor.Int16: math.MinInt16,
		tensor.Int32: math.MinInt32, tensor.Int64: math.MinInt64} {
		limit := float64(math.MaxInt32)
		if dt == tensor.Int64 {
			limit = math.Nextafter(-math.MinInt64, 0)
		}
		for _, factor := range meanFactors {
			p := math.Trunc(largest * factor)
			if staysInside(dt, factor) && (math.Abs(p) > limit || dt == tensor.Uint16 && p < 0) {
				t.Errorf("%v × %v is %v", dt, factor, p)
			}
		}
	}
}

func TestHalvings(t *testing.T) {
	for factor, want := range map[float64]int{1: 0, 0.5: 1, 0.25: 2, -0.5: 0, 2: 0, 0: 0, 0.75: 0, 1.0 / (1 << 14): 14,
		1.0 / (1 << 15): 0, math.Nextafter(0.5, 1): 0} {
		if n := halvings(factor); n != want {
			t.Errorf("%v: %d, want %d", factor, n, want)
		}
	}
}
