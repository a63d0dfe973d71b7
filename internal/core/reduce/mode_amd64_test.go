package reduce

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// A framework may let its threads flush subnormals to zero, or round in another way. Neither may change a result, and
// the kernels must restore the mode.
func TestThreadsModeChangesNothing(t *testing.T) {
	if best == portable {
		t.Skip("the processor has no assembly kernels")
	}
	const (
		defaultMode = 0x1f80
		flush       = 1<<15 | 1<<6 // results and operands
		roundUp     = 2 << 13
	)
	a, b := make([]byte, 400), make([]byte, 400)
	for i := 0; i < len(a); i += 4 {
		binary.LittleEndian.PutUint32(a[i:], 0x0000_1001)                 // subnormal
		binary.LittleEndian.PutUint32(b[i:], 0x3f80_0001+uint32(i/4)<<20) // a bit more than 1, and others
	}
	operands := map[string][][]byte{
		"subnormal and subnormal": {a, a},
		"subnormal and normal":    {a, b},
		"normal and normal":       {b, b},
		"half of each":            {a[:200], b[:200]},
	}
	for name, srcs := range operands {
		t.Run(name, func(t *testing.T) {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
				for _, v := range variants()[1:] {
					sum := func() []byte {
						out := make([]byte, len(srcs[0]))
						reduceWith(v, dt, tensor.Sum, out, srcs, 1.1)
						return out
					}
					want := sum()
					for _, mode := range []uint32{flush, roundUp} {
						got, still := underMode(defaultMode, mode, sum)
						requireEqual(t, dt, v.String(), got, want, srcs)
						if still != mode {
							t.Fatalf("%v: the mode was %#x and is now %#x", v, mode, still)
						}
					}
					if !bytes.Equal(sum(), want) {
						t.Fatalf("%v: results changed after the mode was set back", v)
					}
				}
			}
		})
	}
}

// underMode calls sum on a thread with this mode, and returns the result and the thread's mode afterwards.
func underMode(before, mode uint32, sum func() []byte) (result []byte, after uint32) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setMode(before | mode)
	defer setMode(before)
	result = sum()
	return result, probeMode()

}

// The other kernels that round.
func TestThreadsModeChangesNoConversion(t *testing.T) {
	if best == portable {
		t.Skip("the processor has no assembly kernels")
	}
	rnd := source(t)
	const n = 300
	wide, fine := fill(rnd, tensor.Float64, n, 0), fill(rnd, tensor.Float32, n, 0)
	half := fill(rnd, tensor.BFloat16, n, 0)
	for _, v := range variants()[1:] {
		all := func() (results [][]byte) {
			add := func(size int, f func(dst []byte)) {
				dst := make([]byte, size*n)
				f(dst)
				results = append(results, dst[:size*(n&^(wideElements-1))]) // the rest is portable
			}
			add(4, func(dst []byte) { castWith(v, tensor.Float32, tensor.Float64, dst, wide) })
			add(2, func(dst []byte) { castWith(v, tensor.Float16, tensor.Float32, dst, fine) })
			add(2, func(dst []byte) { castWith(v, tensor.BFloat16, tensor.Float32, dst, fine) })
			add(4, func(dst []byte) { addCastWith(v, tensor.Float32, tensor.BFloat16, dst, fine, half, 0.3) })
			add(8, func(dst []byte) { addCastWith(v, tensor.Float64, tensor.BFloat16, dst, wide, half, 0.3) })
			add(4, func(dst []byte) { copy(dst, fine); blendWith(v, tensor.Float32, dst, fine, 0.3, 1e-30) })
			return results
		}
		want := all()
		for _, mode := range []uint32{1<<15 | 1<<6, 2 << 13} { // subnormals flushed, rounding up
			runtime.LockOSThread()
			setMode(0x1f80 | mode)
			got := all()
			setMode(0x1f80)
			runtime.UnlockOSThread()
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("%v: result %d changes with the mode %#x", v, i, mode)
				}
			}
		}
	}
}

// probeMode tests by arithmetic whether the thread flushes subnormals or rounds up.
func probeMode() uint32 {
	switch {
	case subnormal*2 == 0:
		return 1<<15 | 1<<6
	case one+tiny > one:
		return 2 << 13
	}
	return 0
}

// Variables, so that the compiler does not do the arithmetic itself.
var (
	subnormal = float32(1e-42)
	one       = float32(1)
	tiny      = float32(1e-20)
)
