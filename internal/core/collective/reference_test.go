package collective

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// naiveAllreduce is the reference: one element after the other, each combined
// in the order of the members.
func naiveAllreduce(dt tensor.DType, op tensor.ReduceOp, ins [][]byte, scale float64) []byte {
	out := make([]byte, len(ins[0]))
	size := dt.Size()
	for at := 0; at < len(out); at += size {
		var bits uint64
		switch dt {
		case tensor.Float32, tensor.Float16, tensor.BFloat16:
			acc := decode32(dt, ins[0][at:])
			for _, in := range ins[1:] {
				acc = combine(op, acc, decode32(dt, in[at:]))
			}
			if scale != 1 {
				acc *= float32(scale)
			}
			bits = encode32(dt, acc)
		case tensor.Float64:
			acc := math.Float64frombits(load(ins[0][at:], 8))
			for _, in := range ins[1:] {
				acc = combine(op, acc, math.Float64frombits(load(in[at:], 8)))
			}
			if scale != 1 {
				acc *= scale
			}
			bits = math.Float64bits(acc)
		case tensor.Bool:
			acc := ins[0][at] != 0
			for _, in := range ins[1:] {
				switch op {
				case tensor.Sum, tensor.Max, tensor.BitOr:
					acc = acc || in[at] != 0
				case tensor.BitXor:
					acc = acc != (in[at] != 0)
				default:
					acc = acc && in[at] != 0
				}
			}
			if acc {
				bits = 1
			}
		default:
			acc := decodeInt(dt, load(ins[0][at:], size))
			for _, in := range ins[1:] {
				acc = decodeInt(dt, uint64(combineInt(op, acc, decodeInt(dt, load(in[at:], size)))))
			}
			if scale != 1 {
				acc = scaleInt(dt, acc, scale)
			}
			bits = uint64(acc)
		}
		store(out[at:], size, bits)
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

func combine[T int64 | float32 | float64](op tensor.ReduceOp, a, b T) T {
	switch op {
	case tensor.Sum:
		return a + b
	case tensor.Product:
		return a * b
	case tensor.Min:
		return min(a, b)
	default:
		return max(a, b)
	}
}

func load(p []byte, size int) uint64 {
	var b [8]byte
	copy(b[:], p[:size])
	return binary.LittleEndian.Uint64(b[:])
}

func store(p []byte, size int, bits uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	copy(p[:size], b[:])
}

func decode32(dt tensor.DType, p []byte) float32 {
	switch dt {
	case tensor.Float16:
		return tensor.Float16ToFloat32(uint16(load(p, 2)))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(uint16(load(p, 2)))
	default:
		return math.Float32frombits(uint32(load(p, 4)))
	}
}

func encode32(dt tensor.DType, f float32) uint64 {
	switch dt {
	case tensor.Float16:
		return uint64(tensor.Float32ToFloat16(f))
	case tensor.BFloat16:
		return uint64(tensor.Float32ToBFloat16(f))
	default:
		return uint64(math.Float32bits(f))
	}
}

// decodeInt extends the low bytes of bits by sign or zero.
func decodeInt(dt tensor.DType, bits uint64) int64 {
	shift := 64 - 8*dt.Size()
	if dt == tensor.Uint8 || dt == tensor.Uint16 {
		return int64(bits << shift >> shift)
	}
	return int64(bits<<shift) >> shift
}

func scaleInt(dt tensor.DType, v int64, scale float64) int64 {
	bits := 8 * dt.Size()
	lo, hi := -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	if dt == tensor.Uint8 || dt == tensor.Uint16 {
		lo, hi = 0, math.Ldexp(1, bits)
	}
	switch f := math.Trunc(float64(v) * scale); {
	case f <= lo:
		return int64(lo)
	case f >= hi:
		return int64(hi - 1) // exact, except for int64, whose test data are smaller
	default:
		return int64(f)
	}
}

// elements makes n random elements. Exact elements make a reduction of a few members exact in every type, so the order
// does not matter.
func elements(rng *rand.Rand, dt tensor.DType, n int, exact bool) []byte {
	size := dt.Size()
	p := make([]byte, n*size)
	for at := 0; at < len(p); at += size {
		var bits uint64
		switch dt {
		case tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16:
			f := rng.NormFloat64()
			if exact {
				f = []float64{1, -1, 2, -2, 0.5}[rng.IntN(5)]
			}
			if dt == tensor.Float64 {
				bits = math.Float64bits(f)
			} else {
				bits = encode32(dt, float32(f))
			}
		case tensor.Bool:
			bits = rng.Uint64N(2)
		case tensor.Int64:
			bits = uint64(rng.Int64N(1<<40) - 1<<39)
		default:
			bits = rng.Uint64()
		}
		store(p[at:], size, bits)
	}
	return p
}
