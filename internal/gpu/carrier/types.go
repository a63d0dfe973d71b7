package carrier

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/gpu/nccl"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/tensor"
)

// elements are NCCL's types of those that it can reduce.
var elements = map[tensor.DType]nccl.DType{
	tensor.Uint8: nccl.Uint8, tensor.Int8: nccl.Int8, tensor.Int32: nccl.Int32, tensor.Int64: nccl.Int64,
	tensor.Float16: nccl.Float16, tensor.Float32: nccl.Float32, tensor.Float64: nccl.Float64,
	tensor.BFloat16: nccl.BFloat16, tensor.Float8E4M3FN: nccl.Float8E4M3, tensor.Float8E5M2: nccl.Float8E5M2,
}

// float8Capability is the compute capability of devices from which on NCCL reduces floats of 8 bits.
const float8Capability = 9

var reduceOps = map[tensor.ReduceOp]nccl.ReduceOp{
	tensor.Sum: nccl.Sum, tensor.Min: nccl.Min, tensor.Max: nccl.Max, tensor.Product: nccl.Product,
}

// byNCCL reports whether NCCL can do an operation; float8 says that it reduces floats of 8 bits. It moves elements of
// any type as bytes. It reduces the types that it knows. Two factors become one, for floating-point numbers that are
// added: those of integers are rounded apart, and those of products and extrema do not multiply the result alone.
func byNCCL(kind operation.Kind, dtype tensor.DType, op tensor.ReduceOp, prescale, postscale float64,
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
	return op == tensor.Sum && factorOf(dtype, prescale*postscale) != nil
}

// factorOf is a factor as an element's bytes; nil if the type does not have it, or nothing close to it.
func factorOf(dtype tensor.DType, factor float64) []byte {
	var b []byte
	var got float64
	switch f := float32(factor); dtype {
	case tensor.Float16:
		h := tensor.Float32ToFloat16(f)
		b, got = binary.NativeEndian.AppendUint16(nil, h), float64(tensor.Float16ToFloat32(h))
	case tensor.BFloat16:
		h := tensor.Float32ToBFloat16(f)
		b, got = binary.NativeEndian.AppendUint16(nil, h), float64(tensor.BFloat16ToFloat32(h))
	case tensor.Float32:
		b, got = binary.NativeEndian.AppendUint32(nil, math.Float32bits(f)), float64(f)
	case tensor.Float64:
		b, got = binary.NativeEndian.AppendUint64(nil, math.Float64bits(factor)), factor
	case tensor.Float8E4M3FN, tensor.Float8E5M2:
		bits, exact := tensor.Float8Of(dtype, f)
		if !exact {
			return nil
		}
		b, got = []byte{bits}, float64(f)
	}
	if math.Abs(got-factor) > math.Abs(factor)/128 || got-got != 0 { // subnormal, or too large
		return nil
	}
	return b
}
