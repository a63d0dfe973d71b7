package carrier

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// elements maps the types that NCCL can reduce to its own.
var elements = map[tensor.DType]nccl.DType{
	tensor.Uint8: nccl.Uint8, tensor.Int8: nccl.Int8, tensor.Int32: nccl.Int32, tensor.Int64: nccl.Int64,
	tensor.Float16: nccl.Float16, tensor.Float32: nccl.Float32, tensor.Float64: nccl.Float64,
	tensor.BFloat16: nccl.BFloat16, tensor.Float8E4M3FN: nccl.Float8E4M3, tensor.Float8E5M2: nccl.Float8E5M2,
}

// float8Capability is the least major compute capability of a device on which NCCL reduces floats of 8 bits.
const float8Capability = 9

var reduceOps = map[tensor.ReduceOp]nccl.ReduceOp{
	tensor.Sum: nccl.Sum, tensor.Min: nccl.Min, tensor.Max: nccl.Max, tensor.Product: nccl.Product,
}

// byNCCL reports whether NCCL can do an operation. float8 says whether NCCL reduces floats of 8 bits. NCCL moves
// elements of any type as bytes, and reduces the types in elements. It scales only sums of floating-point numbers, see
// scalesAlike. Integers are rounded after each of the two factors, and for products and extrema the two factors cannot
// become one.
func byNCCL(kind operation.Kind, dtype tensor.DType, op tensor.ReduceOp, prescale, postscale float64, members int,
	float8 bool) bool {
	switch kind {
	case operation.Broadcast, operation.Allgather, operation.Alltoall, operation.Gather, operation.Scatter:
		return true
	case operation.Allreduce, operation.Reduce, operation.Reducescatter:
	default:
		return false
	}
	if _, ok := elements[dtype]; !ok || dtype.IsFloat8() && !float8 {
		return false
	}
	if _, ok := reduceOps[op]; !ok {
		return false
	}
	if prescale == 1 && postscale == 1 {
		return true
	}
	return op == tensor.Sum && scalesAlike(dtype, prescale, postscale, members)
}

// scalesAlike reports whether NCCL may do the work of both factors. NCCL multiplies each element by one factor of the
// element's type before it adds, while the host's kernels scale in float32 or better.
//
//   - A type of 16 or 8 bits must have the exact factor. A rounded factor would shift all results to one side, by up to
//     0.2 % for bfloat16. The exception is the average over all members, for which NCCL rounds the factor itself:
//     staging would cost more than the error. Floats of 8 bits have no exception.
//   - One factor above 1 and one below 1 keep the sum within the type's range. Their product does not, so NCCL does not
//     scale float16 by it. NCCL does scale floats of 8 bits by it, because the host cannot add them.
//   - NCCL does not scale floats of 8 bits in a communicator of one member.
func scalesAlike(dtype tensor.DType, prescale, postscale float64, members int) bool {
	if dtype.IsFloat8() && members == 1 && prescale*postscale != 1 {
		return false // ncclInvalidArgument, up to NCCL 2.30 at least
	}
	before, after := math.Abs(prescale), math.Abs(postscale)
	if dtype == tensor.Float16 && (before < 1 && after > 1 || before > 1 && after < 1) {
		return false
	}
	if (dtype == tensor.Float16 || dtype == tensor.BFloat16) && averages(prescale*postscale, members) {
		return true
	}
	_, ok := factorBits(dtype, prescale*postscale)
	return ok
}

// averages reports whether a factor makes an average over the members, apart from rounding errors in the factor.
func averages(factor float64, members int) bool {
	return math.Abs(factor*float64(members)-1) < 1e-12
}

// factorOf returns a factor as the bytes of an element, or nil if the type does not have the factor.
func factorOf(dtype tensor.DType, factor float64) []byte {
	bits, ok := factorBits(dtype, factor)
	if !ok {
		return nil
	}
	switch dtype.Size() {
	case 1:
		return []byte{byte(bits)}
	case 2:
		return binary.NativeEndian.AppendUint16(nil, uint16(bits))
	case 4:
		return binary.NativeEndian.AppendUint32(nil, uint32(bits))
	}
	return binary.NativeEndian.AppendUint64(nil, bits)
}

// factorBits returns a factor as the bits of an element, and whether the type has the factor. For a type of 32 or 64
// bits the nearest number will do.
func factorBits(dtype tensor.DType, factor float64) (bits uint64, ok bool) {
	var got float64
	switch f := float32(factor); dtype {
	case tensor.Float16:
		h := tensor.Float32ToFloat16(f)
		bits, got = uint64(h), float64(tensor.Float16ToFloat32(h))
	case tensor.BFloat16:
		h := tensor.Float32ToBFloat16(f)
		bits, got = uint64(h), float64(tensor.BFloat16ToFloat32(h))
	case tensor.Float32:
		bits, got = uint64(math.Float32bits(f)), float64(f)
	case tensor.Float64:
		bits, got = math.Float64bits(factor), factor
	case tensor.Float8E4M3FN, tensor.Float8E5M2:
		b, exact := tensor.Float8Of(dtype, f)
		if !exact {
			return 0, false
		}
		bits, got = uint64(b), float64(f)
	}
	allowed := 0.0
	if dtype.Size() >= 4 {
		allowed = math.Abs(factor) / (1 << 23)
	}
	ok = math.Abs(got-factor) <= allowed && got-got == 0 // not rounded, subnormal, or too large
	return bits, ok
}
