package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// edges are elements at the limit of the finite ones, of each float type, and whether they are finite.
func edges(dt tensor.DType) map[uint64]bool {
	switch dt {
	case tensor.Float64:
		return map[uint64]bool{0x7fef_ffff_ffff_ffff: true, 0xffef_ffff_ffff_ffff: true, 0x8000_0000_0000_0000: true,
			0x7ff0_0000_0000_0000: false, 0xfff0_0000_0000_0000: false, 0x7ff0_0000_0000_0001: false,
			0xffff_ffff_ffff_ffff: false}
	case tensor.Float32:
		return map[uint64]bool{0x7f7f_ffff: true, 0xff7f_ffff: true, 0x8000_0000: true, 0x7f80_0000: false,
			0xff80_0000: false, 0x7f80_0001: false, 0xffff_ffff: false}
	case tensor.Float16:
		return map[uint64]bool{0x7bff: true, 0xfbff: true, 0x8000: true, 0x7c00: false, 0xfc00: false, 0x7c01: false,
			0xffff: false}
	}
	return map[uint64]bool{0x7f7f: true, 0xff7f: true, 0x8000: true, 0x7f80: false, 0xff80: false, 0x7f81: false,
		0xffff: false}
}

// put writes the bits of one element.
func put(p []byte, dt tensor.DType, bits uint64) {
	switch dt.Size() {
	case 2:
		binary.NativeEndian.PutUint16(p, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(p, uint32(bits))
	default:
		binary.NativeEndian.PutUint64(p, bits)
	}
}

// One element at any place decides, whatever the bytes around the array are.
func TestFiniteSeesEachPlace(t *testing.T) {
	for _, dt := range floats {
		size := dt.Size()
		for bits, finite := range edges(dt) {
			for _, n := range []int{1, 3, finiteBlock/size + 1, findBytes/size + finiteBlock/size + 5} {
				for _, off := range []int{0, 2, 32 - size} {
					field := aligned(n*size+2*guard, off)
					for i := range field {
						field[i] = 0xff // NaNs
					}
					src := field[guard : guard+n*size]
					clear(src)
					for _, v := range variants() {
						for i := range n {
							put(src[i*size:], dt, bits)
							if finiteWith(v, dt, src) != finite {
								t.Fatalf("%v %v: %#x at %d of %d counts as finite: %v", v, dt, bits, i, n, !finite)
							}
							put(src[i*size:], dt, 0)
						}
					}
				}
			}
		}
	}
}

func TestFiniteOfNothingAndOfIntegers(t *testing.T) {
	ones := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for dt := range tensor.DType(tensor.NumReducible) {
		if !Finite(dt, nil) {
			t.Errorf("%v: nothing is not finite", dt)
		}
		if Finite(dt, ones) == isFloat(dt) {
			t.Errorf("%v: all bits set is finite: %v", dt, !isFloat(dt))
		}
	}
}

// The indices are right also beyond one call of assembly.
func TestFindCountsAndPlaces(t *testing.T) {
	for _, dt := range floats {
		size := dt.Size()
		n := (2*callBytes + 3*findBytes) / size
		src := make([]byte, n*size)
		inf := exponentsOf[dt].all >> (64 - 8*size)
		first := callBytes/size + 77
		put(src[first*size:], dt, inf)
		put(src[(first+1)*size:], dt, inf|1)
		put(src[(n-1)*size:], dt, inf|1)
		if Finite(dt, src) {
			t.Errorf("%v: finite", dt)
		}
		f := Find(dt, src, true)
		if f.First != int64(first) || !math.IsInf(f.Value, 1) || f.NaNs != 2 || f.Infs != 1 {
			t.Errorf("%v: %+v, expected an infinity at %d, one in all, and two NaNs", dt, f, first)
		}
		if f := Find(dt, src, false); f.First != int64(first+1) || !math.IsNaN(f.Value) || f.NaNs != 2 || f.Infs != 0 {
			t.Errorf("%v: %+v, expected two NaNs, the first at %d", dt, f, first+1)
		}
	}
}

// BenchmarkFinite reads one array.
func BenchmarkFinite(b *testing.B) {
	for _, size := range benchSizes {
		x := touched(tensor.Float32, size.bytes)
		for _, v := range variants() {
			b.Run(fmt.Sprintf("%s/%v", size.name, v), func(b *testing.B) {
				measure(b, size.bytes, size.bytes, func() { finiteWith(v, tensor.Float32, x) })
			})
		}
	}
}
