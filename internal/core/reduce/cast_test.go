package reduce

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

var floats = []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64}

// floatOf is the value of an element with the given bits.
func floatOf(dt tensor.DType, x uint64) float64 {
	switch dt {
	case tensor.Float16:
		return float64(tensor.Float16ToFloat32(uint16(x)))
	case tensor.BFloat16:
		return float64(tensor.BFloat16ToFloat32(uint16(x)))
	case tensor.Float32:
		return float64(math.Float32frombits(uint32(x)))
	}
	return math.Float64frombits(x)
}

func referenceCast(to, from tensor.DType, src []byte) []byte {
	if to == from {
		return src
	}
	n := len(src) / from.Size()
	dst := make([]byte, n*to.Size())
	for i := range n {
		f := roundTo32(floatOf(from, element(src[i*from.Size():(i+1)*from.Size()])))
		putElement(dst[i*to.Size():(i+1)*to.Size()], floatBits(to, f))
	}
	return dst
}

// guarded is an array of n bytes at offset off from an address divisible by 64, and a function that reports whether the
// bytes around it are untouched.
func guarded(n, off int) (b []byte, intact func() bool) {
	field := aligned(n+2*guard, off)
	for i := range field {
		field[i] = 0xa5
	}
	return field[guard : guard+n : guard+n], func() bool {
		around := append(bytes.Clone(field[:guard]), field[guard+n:]...)
		return bytes.Count(around, []byte{0xa5}) == len(around)
	}
}

// nearTies mixes elements on a tie of a narrow type, or close to one, into random elements of a wide type.
func nearTies(rnd *rand.Rand, from tensor.DType, src []byte) {
	for i := 0; i+from.Size() <= len(src); i += (1 + rnd.IntN(4)) * from.Size() {
		half := []tensor.DType{tensor.Float16, tensor.BFloat16}[rnd.IntN(2)]
		x := uint16(rnd.Uint32()) & 0x7fff
		a, b := floatOf(half, uint64(x)), floatOf(half, uint64(x+1))
		f := a + (b-a)/2
		switch rnd.IntN(3) {
		case 0:
			f = math.Nextafter(f, math.Inf(-1))
		case 1:
			f = math.Nextafter(f, math.Inf(1))
		}
		if rnd.IntN(2) == 0 {
			f = -f
		}
		putElement(src[i:i+from.Size()], floatBits(from, f))
	}
}

func TestCast(t *testing.T) {
	for _, from := range floats {
		for _, to := range floats {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				rnd := source(t)
				check := func(n int) {
					src := fill(rnd, from, n, rnd.IntN(64))
					if from.Size() > 2 {
						nearTies(rnd, from, src)
					}
					checkCast(t, rnd, to, from, src)
				}
				for n := range 4 * wideElements {
					check(n)
				}
				// The kernels prefetch 512 elements ahead while there are that many.
				for n := 512 - wideElements - 1; n < 1024+2*wideElements; n += wideElements/2 + 1 {
					check(n)
				}
				check(callBytes/4 + 77)
			})
		}
	}
}

func checkCast(t *testing.T, rnd *rand.Rand, to, from tensor.DType, src []byte) {
	t.Helper()
	want := referenceCast(to, from, src)
	for _, v := range variants() {
		dst, intact := guarded(len(want), rnd.IntN(64))
		castWith(v, to, from, dst, src)
		requireEqual(t, to, v.String(), dst, want, nil)
		if !intact() {
			t.Fatalf("%v: wrote beside the destination", v)
		}
	}
}

// Each 16-bit float is a float32 and a float64, and comes back from them unchanged.
func TestCastOfEach16BitFloat(t *testing.T) {
	for _, half := range floats[:2] {
		all := make([]byte, 2<<16)
		for i := range 1 << 16 {
			putElement(all[2*i:2*i+2], uint64(i))
		}
		for _, wide := range floats[2:] {
			for _, v := range variants() {
				there, back := make([]byte, wide.Size()<<16), make([]byte, 2<<16)
				castWith(v, wide, half, there, all)
				castWith(v, half, wide, back, there)
				for i := range 1 << 16 {
					x, y := uint64(i), element(back[2*i:2*i+2])
					if isNaN16(half, x) {
						x = floatBits(half, math.NaN())
					}
					if x != y {
						t.Fatalf("%v: %#04x of %v went to %v and came back as %#04x", v, i, half, wide, y)
					}
				}
			}
		}
	}
}

func TestAddCast(t *testing.T) {
	for _, wire := range floats[:2] {
		for _, dt := range floats[2:] {
			t.Run(fmt.Sprintf("%v to %v", wire, dt), func(t *testing.T) {
				rnd := source(t)
				for n := range 4 * wideElements {
					checkAddCast(t, rnd, dt, wire, n)
				}
				checkAddCast(t, rnd, dt, wire, callBytes/4+77)
			})
		}
	}
}

func checkAddCast(t *testing.T, rnd *rand.Rand, dt, wire tensor.DType, n int) {
	t.Helper()
	a, b := fill(rnd, dt, n, rnd.IntN(64)), fill(rnd, wire, n, rnd.IntN(64))
	all := scales(dt)
	for _, scale := range []float64{1, all[rnd.IntN(len(all))]} {
		want := reference(dt, tensor.Sum, [][]byte{a, referenceCast(dt, wire, b)}, scale)
		for _, v := range variants() {
			dst, intact := guarded(len(a), rnd.IntN(64))
			addCastWith(v, dt, wire, dst, a, b, scale)
			requireEqual(t, dt, fmt.Sprintf("%v, scale %v", v, scale), dst, want, [][]byte{a})
			if !intact() {
				t.Fatalf("%v: wrote beside the destination", v)
			}
			inPlace := bytes.Clone(a)
			addCastWith(v, dt, wire, inPlace, inPlace, b, scale)
			requireEqual(t, dt, v.String()+" in place", inPlace, want, [][]byte{a})
		}
	}
}

func TestBrokenCastsPanic(t *testing.T) {
	eight := make([]byte, 8)
	for name, call := range map[string]func(){
		"integer":         func() { Cast(tensor.Float32, tensor.Int32, eight, eight) },
		"lengths":         func() { Cast(tensor.Float32, tensor.Float16, eight, eight) },
		"partial element": func() { Cast(tensor.Float32, tensor.Float16, eight[:6], eight[:4]) },
		"wide wire":       func() { AddCast(tensor.Float32, tensor.Float32, eight, eight, eight, 1) },
		"short wire":      func() { AddCast(tensor.Float32, tensor.Float16, eight, eight, eight[:2], 1) },
		"narrow sum":      func() { AddCast(tensor.Float16, tensor.Float16, eight, eight, eight, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func TestCastsAllocateNothing(t *testing.T) {
	wide, narrow := make([]byte, 999*8), make([]byte, 999*2)
	for _, v := range variants() {
		if n := testing.AllocsPerRun(10, func() {
			castWith(v, tensor.Float16, tensor.Float64, narrow, wide)
			castWith(v, tensor.Float32, tensor.BFloat16, wide[:999*4], narrow)
			addCastWith(v, tensor.Float64, tensor.Float16, wide, wide, narrow, 0.5)
			addCastWith(v, tensor.Float32, tensor.BFloat16, wide[:999*4], wide[:999*4], narrow, 0.5)
		}); n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
	}
}
