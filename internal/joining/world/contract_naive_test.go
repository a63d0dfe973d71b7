package world

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The meaning of the operations, as plainly as possible and without the engine: one element after the other, in float64
// or int64, rounded to the element's type where the contract says so.

func isFloat(dt tensor.DType) bool {
	switch dt {
	case tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64:
		return true
	}
	return false
}

// intLimits are the smallest and the largest value of an integer type.
func intLimits(dt tensor.DType) (low, high int64) {
	switch dt {
	case tensor.Uint8, tensor.Uint16:
		return 0, 1<<(8*dt.Size()) - 1
	}
	return math.MinInt64 >> (64 - 8*dt.Size()), math.MaxInt64 >> (64 - 8*dt.Size())
}

// wrap is v modulo the type's range.
func wrap(dt tensor.DType, v int64) int64 {
	shift := 64 - 8*dt.Size()
	if low, _ := intLimits(dt); low == 0 {
		return int64(uint64(v) << shift >> shift)
	}
	return v << shift >> shift
}

// scaleInt multiplies in double precision, truncates toward zero and saturates.
func scaleInt(dt tensor.DType, v int64, factor float64) int64 {
	if factor == 1 {
		return v
	}
	low, high := intLimits(dt)
	f := math.Trunc(float64(v) * factor)
	switch {
	case f <= float64(low):
		return low
	case f >= float64(high):
		return high
	}
	return int64(f)
}

// scaleFloat multiplies float64 in double precision, the narrower types in single.
func scaleFloat(dt tensor.DType, v, factor float64) float64 {
	if dt == tensor.Float64 {
		return v * factor
	}
	return float64(float32(v) * float32(factor))
}

// mantissaBits describes the floats, and minExponent the floats of 16 bits.
func mantissaBits(dt tensor.DType) int {
	switch dt {
	case tensor.Float16:
		return 10
	case tensor.BFloat16:
		return 7
	case tensor.Float32:
		return 23
	}
	return 52
}

func minExponent(dt tensor.DType) int {
	if dt == tensor.Float16 {
		return -14
	}
	return -126
}

// halfBits are the bits of v, rounded to the nearest finite 16-bit float, ties to even.
func halfBits(dt tensor.DType, v float64) uint16 {
	man := mantissaBits(dt)
	var sign uint16
	if math.Signbit(v) {
		sign = 0x8000
	}
	v = math.Abs(v)
	if v == 0 {
		return sign
	}
	exp := max(math.Ilogb(v), minExponent(dt))
	steps := uint16(math.RoundToEven(math.Ldexp(v, man-exp))) // may carry into the exponent, as it should
	return sign | uint16(exp-minExponent(dt))<<man + steps
}

func halfValue(dt tensor.DType, bits uint16) float64 {
	man := mantissaBits(dt)
	exp, frac := int(bits&0x7fff)>>man, float64(bits&(1<<man-1))
	v := math.Ldexp(frac, minExponent(dt)-man)
	if exp > 0 {
		v = math.Ldexp(frac+float64(uint(1)<<man), exp-1+minExponent(dt)-man)
	}
	if bits&0x8000 != 0 {
		v = -v
	}
	return v
}

func appendFloat(b []byte, dt tensor.DType, v float64) []byte {
	switch dt {
	case tensor.Float64:
		return binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
	case tensor.Float32:
		return binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return binary.NativeEndian.AppendUint16(b, halfBits(dt, v))
}

func floatAt(b []byte, dt tensor.DType, i int) float64 {
	switch dt {
	case tensor.Float64:
		return math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
	case tensor.Float32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])))
	}
	return halfValue(dt, binary.NativeEndian.Uint16(b[2*i:]))
}

func appendInt(b []byte, dt tensor.DType, v int64) []byte {
	switch dt.Size() {
	case 1:
		return append(b, byte(v))
	case 2:
		return binary.NativeEndian.AppendUint16(b, uint16(v))
	case 4:
		return binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	return binary.NativeEndian.AppendUint64(b, uint64(v))
}

func intAt(b []byte, dt tensor.DType, i int) int64 {
	switch dt.Size() {
	case 1:
		return wrap(dt, int64(b[i]))
	case 2:
		return wrap(dt, int64(binary.NativeEndian.Uint16(b[2*i:])))
	case 4:
		return wrap(dt, int64(binary.NativeEndian.Uint32(b[4*i:])))
	}
	return int64(binary.NativeEndian.Uint64(b[8*i:]))
}

// naiveReduce is post × (1/size if Average) × Σ pre × x, of what draw has made. Nobody may write to it: large ones are
// computed once.
func naiveReduce(dt tensor.DType, op tensor.ReduceOp, ins [][]byte, pre, post float64) []byte {
	if len(ins[0]) < large*dt.Size() {
		return naivelyReduced(dt, op, ins, pre, post)
	}
	key := fmt.Sprint(dt, op, pre, post)
	for _, in := range ins {
		key += fmt.Sprintf(" %p", in) // of draw, which remembers it
	}
	b, ok := reductions.Load(key)
	if !ok {
		b, _ = reductions.LoadOrStore(key, naivelyReduced(dt, op, ins, pre, post))
	}
	return b.([]byte)
}

// naivelyReduced computes what naiveReduce remembers, also of operands that draw has not made.
func naivelyReduced(dt tensor.DType, op tensor.ReduceOp, ins [][]byte, pre, post float64) []byte {
	if op == tensor.Average {
		post /= float64(len(ins))
	}
	out := make([]byte, 0, len(ins[0]))
	for i := range len(ins[0]) / dt.Size() {
		switch {
		case dt == tensor.Bool:
			all, any, odd := byte(1), byte(0), byte(0)
			for _, in := range ins {
				all, any, odd = all&in[i], any|in[i], odd^in[i]
			}
			switch op {
			case tensor.Min, tensor.Product, tensor.BitAnd:
				any = all
			case tensor.BitXor:
				any = odd
			}
			out = append(out, any)
		case isFloat(dt):
			var acc float64
			for m, in := range ins {
				v := floatAt(in, dt, i)
				if pre != 1 {
					v = floatAt(appendFloat(nil, dt, scaleFloat(dt, v, pre)), dt, 0)
				}
				if m == 0 {
					acc = v
					continue
				}
				acc = combine(op, acc, v)
			}
			if post != 1 {
				acc = scaleFloat(dt, acc, post)
			}
			out = appendFloat(out, dt, acc)
		default:
			acc := scaleInt(dt, intAt(ins[0], dt, i), pre)
			for _, in := range ins[1:] {
				acc = wrap(dt, combineInt(op, acc, scaleInt(dt, intAt(in, dt, i), pre)))
			}
			out = appendInt(out, dt, scaleInt(dt, acc, post))
		}
	}
	return out
}

func combineInt(op tensor.ReduceOp, a, b int64) int64 {
	switch op {
	case tensor.BitAnd:
		return a & b
	case tensor.BitOr:
		return a | b
	case tensor.BitXor:
		return a ^ b
	}
	return combine(op, a, b)
}

// ofBits reports whether op is for integers and bool only.
func ofBits(op tensor.ReduceOp) bool {
	return op == tensor.BitAnd || op == tensor.BitOr || op == tensor.BitXor
}

func combine[T int64 | float64](op tensor.ReduceOp, a, b T) T {
	switch op {
	case tensor.Min:
		return min(a, b)
	case tensor.Max:
		return max(a, b)
	case tensor.Product:
		return a * b
	}
	return a + b
}

// naiveAdasum is Adasum of whole vectors in float64: members beyond the largest
// power of two are folded into the first ones, then neighbours combine.
func naiveAdasum(dt tensor.DType, ins [][]byte, pre, post float64) []byte {
	vectors := make([][]float64, len(ins))
	for m, in := range ins {
		for i := range len(in) / dt.Size() {
			vectors[m] = append(vectors[m], pre*floatAt(in, dt, i))
		}
	}
	power := 1
	for 2*power <= len(vectors) {
		power *= 2
	}
	for m := power; m < len(vectors); m++ {
		vectors[m-power] = adasumOf(vectors[m-power], vectors[m])
	}
	for vectors = vectors[:power]; len(vectors) > 1; {
		var half [][]float64
		for m := 0; m < len(vectors); m += 2 {
			half = append(half, adasumOf(vectors[m], vectors[m+1]))
		}
		vectors = half
	}
	var out []byte
	for _, v := range vectors[0] {
		out = appendFloat(out, dt, post*v)
	}
	return out
}

// adasumOf is (1 − a·b/2‖a‖²) a + (1 − a·b/2‖b‖²) b.
func adasumOf(a, b []float64) []float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	ca, cb := 1.0, 1.0
	if aa >= math.Sqrt(0x1p-1022) {
		ca -= dot / (2 * aa)
	}
	if bb >= math.Sqrt(0x1p-1022) {
		cb -= dot / (2 * bb)
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = ca*a[i] + cb*b[i]
	}
	return out
}

// Kinds of data.
type data int

const (
	exact   data = iota // small numbers, whose sums and products every type holds
	extreme             // integers of the whole range, whose sums wrap; floats as in exact
	rough               // floats whose sums are rounded; integers as in exact
)

// draw makes the contribution of a rank: n elements that differ by rank and index. Nobody may write to it: large ones
// are made once.
func draw(dt tensor.DType, op tensor.ReduceOp, kind data, rank, n int) []byte {
	if n < large {
		return drawn(dt, op, kind, rank, n)
	}
	if op != tensor.Product {
		op = tensor.Sum
	}
	key := fmt.Sprint(dt, op, kind, rank, n)
	b, ok := draws.Load(key)
	if !ok {
		b, _ = draws.LoadOrStore(key, drawn(dt, op, kind, rank, n))
	}
	return b.([]byte)
}

// large is how many elements are worth remembering.
const large = 1000

var draws, reductions sync.Map // of []byte by what has made it

// drawn makes what draw remembers. Of op only Product matters.
func drawn(dt tensor.DType, op tensor.ReduceOp, kind data, rank, n int) []byte {
	b := make([]byte, 0, n*dt.Size())
	for i := range n {
		h := uint64(i*7+rank*13+i*rank)*0x9e3779b97f4a7c15 + uint64(rank)
		h ^= h >> 29
		switch {
		case dt == tensor.Bool:
			b = append(b, byte(min(h%5, 1)))
		case isFloat(dt) && kind == rough:
			b = appendFloat(b, dt, (float64(h>>11)*0x1p-53-0.4)*3)
		case isFloat(dt) && op == tensor.Product:
			b = appendFloat(b, dt, []float64{1, 2, -1, 0.5, -2}[h%5])
		case isFloat(dt):
			b = appendFloat(b, dt, float64(int(h%7)-3))
		case kind == extreme:
			b = appendInt(b, dt, int64(h*h))
		default:
			b = appendInt(b, dt, wrap(dt, int64(h%13)-6))
		}
	}
	return b
}

// sameBits demands equal bytes.
func sameBits(dt tensor.DType, got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return nil
	}
	size := dt.Size()
	for i := 0; i < len(got); i += size {
		if string(got[i:i+size]) != string(want[i:i+size]) {
			return fmt.Errorf("element %d of %d is %s instead of %s", i/size, len(got)/size, show(dt, got[i:]),
				show(dt, want[i:]))
		}
	}
	return nil
}

func show(dt tensor.DType, b []byte) string {
	if isFloat(dt) {
		return fmt.Sprintf("%v (%x)", floatAt(b, dt, 0), b[:dt.Size()])
	}
	return fmt.Sprint(intAt(b, dt, 0))
}

// within allows floats an error of ulps units in the last place of numbers as large as scale.
func within(ulps, scale float64) func(dt tensor.DType, got, want []byte) error {
	return func(dt tensor.DType, got, want []byte) error {
		if len(got) != len(want) {
			return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
		}
		allowed := ulps * scale * math.Ldexp(1, -mantissaBits(dt))
		for i := range len(got) / dt.Size() {
			g, w := floatAt(got, dt, i), floatAt(want, dt, i)
			if !(math.Abs(g-w) <= allowed) {
				return fmt.Errorf("element %d is %v instead of %v±%v", i, g, w, allowed)
			}
		}
		return nil
	}
}
