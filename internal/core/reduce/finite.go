package reduce

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Finite reports whether src, elements of type dt, has neither a NaN nor an infinity. Integers are finite. It reads
// src once, at the speed of memory.
func Finite(dt tensor.DType, src []byte) bool { return finiteWith(best, dt, src) }

// NonFinite describes the elements of an array that are not finite.
type NonFinite struct {
	NaNs, Infs int64
	First      int64   // the index of the first one
	Value      float64 // its value
}

// Find describes the elements of src that are not finite; without infs, only the NaNs. First is -1 if there are none.
// It is slower than Finite: call it where Finite is false.
func Find(dt tensor.DType, src []byte, infs bool) NonFinite {
	f := NonFinite{First: -1}
	size := dt.Size()
	for off := 0; off < len(src); off += findBytes {
		block := src[off:min(off+findBytes, len(src))]
		if Finite(dt, block) {
			continue
		}
		for i := 0; i+size <= len(block); i += size {
			if v := valueOf(dt, block[i:]); math.IsNaN(v) || infs && math.IsInf(v, 0) {
				f.add(int64((off+i)/size), v)
			}
		}
	}
	return f
}

// Join adds what other describes: an array that begins at element at of f's. The ranges may come in any order.
func (f *NonFinite) Join(other NonFinite, at int64) {
	if other.First >= 0 && (f.First < 0 || at+other.First < f.First) {
		f.First, f.Value = at+other.First, other.Value
	}
	f.NaNs += other.NaNs
	f.Infs += other.Infs
}

// findBytes is the number of bytes that Find skips at a time.
const findBytes = 4 << 10

func (f *NonFinite) add(index int64, v float64) {
	if f.First < 0 {
		f.First, f.Value = index, v
	}
	if math.IsNaN(v) {
		f.NaNs++
	} else {
		f.Infs++
	}
}

// valueOf returns the first element of p, of a float type.
func valueOf(dt tensor.DType, p []byte) float64 {
	switch dt {
	case tensor.Float64:
		return math.Float64frombits(binary.NativeEndian.Uint64(p))
	case tensor.Float32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(p)))
	case tensor.Float16:
		return float64(tensor.Float16ToFloat32(binary.NativeEndian.Uint16(p)))
	}
	return float64(tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(p)))
}

// exponents are the bits of a float type, repeated to fill 64 bits: all bits of the exponent, and its lowest.
//
// An element is not finite if all bits of its exponent are set. Then adding the lowest bit to the exponent carries into
// the sign's place, and no further. So one addition tests all elements of a word.
type exponents struct{ all, lowest uint64 }

var exponentsOf = [tensor.NumDTypes]exponents{
	tensor.Float16:  {0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400},
	tensor.BFloat16: {0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080},
	tensor.Float32:  {0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000},
	tensor.Float64:  {0x7ff0_0000_0000_0000, 0x0010_0000_0000_0000},
}

// signs are the places into which exponents carry.
func (e exponents) signs() uint64 { return e.all + e.lowest }

// finiteBlock is the number of bytes that a step of the vector kernels reads.
const finiteBlock = 256

// finiteWith is Finite by the given variant.
func finiteWith(v variant, dt tensor.DType, src []byte) bool {
	if !isFloat(dt) {
		return true
	}
	e := exponentsOf[dt]
	if v != portable {
		whole := len(src) &^ (finiteBlock - 1)
		for off := 0; off < whole; off += callBytes {
			if finiteRange(v, e, src[off:min(off+callBytes, whole)])&e.signs() != 0 {
				return false
			}
		}
		src = src[whole:]
	}
	return finitePortable(e, src)
}

// finitePortable tests words of eight bytes, and puts the rest into a last word.
func finitePortable(e exponents, src []byte) bool {
	for ; len(src) >= findBytes; src = src[findBytes:] {
		if e.carried(src[:findBytes])&e.signs() != 0 {
			return false
		}
	}
	whole := len(src) &^ 7
	found := e.carried(src[:whole])
	if whole < len(src) {
		var last [8]byte
		copy(last[:], src[whole:])
		found |= e.carried(last[:])
	}
	return found&e.signs() == 0
}

// carried ors the sums of the words of src, which are whole.
func (e exponents) carried(src []byte) (found uint64) {
	for ; len(src) >= 8; src = src[8:] {
		found |= binary.NativeEndian.Uint64(src)&e.all + e.lowest
	}
	return found
}
