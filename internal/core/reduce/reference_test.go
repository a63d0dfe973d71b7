package reduce

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The reference computes one element at a time, by other methods than the kernels: floats in float64, integers in
// arbitrary precision.

// reference is Reduce without a dst.
func reference(dt tensor.DType, op tensor.ReduceOp, srcs [][]byte, scale float64) []byte {
	size := dt.Size()
	dst := make([]byte, len(srcs[0]))
	if len(srcs) == 1 && scale == 1 && dt != tensor.Bool {
		copy(dst, srcs[0])
		return dst
	}
	xs := make([]uint64, len(srcs))
	for off := 0; off < len(dst); off += size {
		for i, s := range srcs {
			xs[i] = element(s[off : off+size])
		}
		putElement(dst[off:off+size], referenceElement(dt, op, xs, scale))
	}
	return dst
}

func element(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:])
}

func putElement(b []byte, x uint64) {
	var wide [8]byte
	binary.LittleEndian.PutUint64(wide[:], x)
	copy(b, wide[:])
}

func referenceElement(dt tensor.DType, op tensor.ReduceOp, xs []uint64, scale float64) uint64 {
	switch dt {
	case tensor.Float64:
		return floatBits(dt, referenceFloat(op, xs, scale,
			math.Float64frombits, func(f float64) float64 { return f }))
	case tensor.Float32:
		return floatBits(dt, referenceFloat(op, xs, float64(float32(scale)),
			func(x uint64) float64 { return float64(math.Float32frombits(uint32(x))) }, roundTo32))
	case tensor.Float16:
		return floatBits(dt, referenceFloat(op, xs, float64(float32(scale)),
			func(x uint64) float64 { return float64(tensor.Float16ToFloat32(uint16(x))) }, roundTo32))
	case tensor.BFloat16:
		return floatBits(dt, referenceFloat(op, xs, float64(float32(scale)),
			func(x uint64) float64 { return float64(tensor.BFloat16ToFloat32(uint16(x))) }, roundTo32))
	case tensor.Bool:
		return referenceBool(op, xs)
	}
	return referenceInteger(dt, op, xs, scale)
}

// roundTo32 rounds a sum or product of two float32 as float32 arithmetic would: float64 has more than twice its bits,
// so rounding twice has no effect.
func roundTo32(f float64) float64 { return float64(float32(f)) }

func referenceFloat(op tensor.ReduceOp, xs []uint64, scale float64, decode func(uint64) float64,
	round func(float64) float64) float64 {
	acc := decode(xs[0])
	for _, x := range xs[1:] {
		b := decode(x)
		switch op {
		case tensor.Sum:
			acc = round(acc + b)
		case tensor.Product:
			acc = round(acc * b)
		default:
			acc = extreme(op, acc, b)
		}
	}
	return round(acc * scale)
}

func extreme(op tensor.ReduceOp, a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	aIsLess := a < b || a == b && math.Signbit(a)
	if aIsLess == (op == tensor.Min) {
		return a
	}
	return b
}

func floatBits(dt tensor.DType, f float64) uint64 {
	nan := math.IsNaN(f)
	switch dt {
	case tensor.Float64:
		if nan {
			return 0x7ff8_0000_0000_0000
		}
		return math.Float64bits(f)
	case tensor.Float32:
		if nan {
			return 0x7fc0_0000
		}
		return uint64(math.Float32bits(float32(f)))
	case tensor.Float16:
		if nan {
			return 0x7e00
		}
		return uint64(tensor.Float32ToFloat16(float32(f)))
	}
	if nan {
		return 0x7fc0
	}
	return uint64(tensor.Float32ToBFloat16(float32(f)))
}

func referenceBool(op tensor.ReduceOp, xs []uint64) uint64 {
	trues := uint64(0)
	for _, x := range xs {
		if x != 0 {
			trues++
		}
	}
	switch op {
	case tensor.Sum, tensor.Max, tensor.BitOr:
		return min(trues, 1)
	case tensor.BitXor:
		return trues % 2
	}
	return trues / uint64(len(xs))
}

func referenceInteger(dt tensor.DType, op tensor.ReduceOp, xs []uint64, scale float64) uint64 {
	acc := integerOf(dt, xs[0])
	for _, x := range xs[1:] {
		b := integerOf(dt, x)
		switch op {
		case tensor.Sum:
			acc.Add(acc, b)
		case tensor.Product:
			acc.Mul(acc, b)
		case tensor.BitAnd:
			acc.And(acc, b)
		case tensor.BitOr:
			acc.Or(acc, b)
		case tensor.BitXor:
			acc.Xor(acc, b)
		default:
			if (b.Cmp(acc) < 0) == (op == tensor.Min) {
				acc = b
			}
		}
		acc = integerOf(dt, lowBits(acc))
	}
	if scale == 1 {
		return lowBits(acc)
	}
	lowest, highest := integerOf(dt, signBit(dt)), new(big.Int)
	if dt == tensor.Uint8 || dt == tensor.Uint16 {
		lowest.SetInt64(0)
	}
	highest.Add(lowest, new(big.Int).Lsh(big.NewInt(1), uint(8*dt.Size())))
	highest.Sub(highest, big.NewInt(1))

	x := new(big.Float).SetPrec(53).SetInt(acc)
	switch {
	case math.IsNaN(scale), math.IsInf(scale, 0) && x.Sign() == 0:
		return 0
	case math.IsInf(scale, 0):
		if (x.Sign() > 0) == (scale > 0) {
			return lowBits(highest)
		}
		return lowBits(lowest)
	}
	product, _ := new(big.Float).SetPrec(53).Mul(x, big.NewFloat(scale)).Int(nil)
	if product.Cmp(lowest) < 0 {
		product = lowest
	}
	if product.Cmp(highest) > 0 {
		product = highest
	}
	return lowBits(product)
}

func signBit(dt tensor.DType) uint64 { return 1 << (8*dt.Size() - 1) }

// integerOf is the number that the low bits of x represent, as an element of type dt.
func integerOf(dt tensor.DType, x uint64) *big.Int {
	bits := uint(8 * dt.Size())
	x &= math.MaxUint64 >> (64 - bits)
	n := new(big.Int).SetUint64(x)
	if dt != tensor.Uint8 && dt != tensor.Uint16 && x&signBit(dt) != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits))
	}
	return n
}

// lowBits is n modulo 2⁶⁴, in two's complement.
func lowBits(n *big.Int) uint64 {
	return new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}
