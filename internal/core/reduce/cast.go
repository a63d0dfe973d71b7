package reduce

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// wideElements is the number of elements in one turn of a kernel that counts elements. The portable form does the rest
// of an array.
const wideElements = 64

// Cast sets dst to the elements of src, of type from, as elements of type to. Both types are floats.
//
//   - Narrowing rounds to nearest even, and overflows to infinity.
//   - Between float64 and the 16-bit floats it goes through float32, and so rounds twice.
//   - A NaN becomes the package's NaN.
//   - With equal types it is a copy, bit for bit.
//
// The arrays have the same number of elements and do not overlap. They need no alignment. Other arguments are a panic.
func Cast(to, from tensor.DType, dst, src []byte) {
	castWith(best, to, from, dst, src)
}

// AddCast sets dst = scale × (a + b). b has elements of type wire, a 16-bit float. dst and a have elements of type dt,
// float32 or float64; the sum is made in dt. dst may be a, and overlaps nothing else. Other arguments are a panic.
func AddCast(dt, wire tensor.DType, dst, a, b []byte, scale float64) {
	addCastWith(best, dt, wire, dst, a, b, scale)
}

func castWith(v variant, to, from tensor.DType, dst, src []byte) {
	if !isFloat(to) || !isFloat(from) {
		panic(fmt.Sprintf("reduce: no cast from %v to %v", from, to))
	}
	n := elements(to, dst)
	if elements(from, src) != n {
		panic(fmt.Sprintf("reduce: cast of %d bytes of %v to %d of %v", len(src), from, len(dst), to))
	}
	if to == from {
		copy(dst, src)
		return
	}
	done := 0
	if v != portable {
		done = n &^ (wideElements - 1)
		step := callBytes / max(to.Size(), from.Size())
		srcs := [1][]byte{src}
		for at := 0; at < done; at += step {
			castRange(v, casts[from][to], dst, srcs[:], at, min(at+step, done))
		}
	}
	castPortable(to, from, dst[done*to.Size():], src[done*from.Size():])
}

func addCastWith(v variant, dt, wire tensor.DType, dst, a, b []byte, scale float64) {
	if dt != tensor.Float32 && dt != tensor.Float64 || wire != tensor.Float16 && wire != tensor.BFloat16 {
		panic(fmt.Sprintf("reduce: no sum of %v and %v", dt, wire))
	}
	n := elements(wire, b)
	if elements(dt, dst) != n || len(a) != len(dst) {
		panic(fmt.Sprintf("reduce: %d bytes of %v and %d of %v into %d", len(a), dt, len(b), wire, len(dst)))
	}
	done := 0
	if v != portable {
		done = n &^ (wideElements - 1)
		srcs := [2][]byte{b, a}
		step := callBytes / (dt.Size() + 2) &^ (wideElements - 1)
		for at := 0; at < done; at += step {
			addRange(v, dt, wire, dst, srcs[:], scale, at, min(at+step, done))
		}
	}
	size := dt.Size()
	dst, a, b = dst[done*size:], a[done*size:], b[done*2:]
	// The rest, in blocks on the stack.
	var wide [blockLen]float64
	block := bytesOf(wide[:])[:blockLen*size]
	for len(b) > 0 {
		m := min(len(b)/2, blockLen)
		wideB := block[:m*size]
		castPortable(dt, wire, wideB, b[:2*m])
		srcs := [2][]byte{a[:m*size], wideB}
		reducePortable(dt, tensor.Sum, dst[:m*size], srcs[:], scale)
		dst, a, b = dst[m*size:], a[m*size:], b[2*m:]
	}
}

// castPortable is Cast in plain Go.
func castPortable(to, from tensor.DType, dst, src []byte) {
	var block [blockLen]float32
	for len(dst) > 0 {
		n := min(len(dst)/to.Size(), blockLen)
		mid := block[:n]
		loadFloats(from, mid, src)
		finishFloats(mid, 1)
		storeFloats(to, dst, mid)
		dst, src = dst[n*to.Size():], src[n*from.Size():]
	}
}

// loadFloats converts elements of src to float32, until dst is full.
func loadFloats(from tensor.DType, dst []float32, src []byte) {
	switch from {
	case tensor.Float32:
		copy(bytesOf(dst), src)
	case tensor.Float64:
		var raw [blockLen]float64
		copy(bytesOf(raw[:len(dst)]), src)
		for i := range dst {
			dst[i] = float32(raw[i])
		}
	default:
		var raw [blockLen]uint16
		copy(bytesOf(raw[:len(dst)]), src)
		widen(from, dst, raw[:len(dst)])
	}
}

// storeFloats rounds src, and writes it to the start of dst.
func storeFloats(to tensor.DType, dst []byte, src []float32) {
	switch to {
	case tensor.Float32:
		copy(dst, bytesOf(src))
	case tensor.Float64:
		var raw [blockLen]float64
		for i, f := range src {
			raw[i] = float64(f)
		}
		copy(dst, bytesOf(raw[:len(src)]))
	default:
		var raw [blockLen]uint16
		narrow(to, raw[:len(src)], src)
		copy(dst, bytesOf(raw[:len(src)]))
	}
}

// elements is the number of elements of type dt in b. It panics unless they are whole.
func elements(dt tensor.DType, b []byte) int {
	if len(b)%dt.Size() != 0 {
		panic(fmt.Sprintf("reduce: %d bytes are not whole elements of type %v", len(b), dt))
	}
	return len(b) / dt.Size()
}
