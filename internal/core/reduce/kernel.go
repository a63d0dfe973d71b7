package reduce

import "github.com/gorovod/gorovod/internal/base/tensor"

// A kernel is a loop in assembly. Its number is its index in the table of kernels_amd64.s.
type kernel uint8

const (
	_ kernel = iota // 0 stands for none

	// These have a form in AVX-512, too.
	sumFloat16
	productFloat16
	extremeFloat16 // minimum, or maximum by flipping signs
	sumBFloat16
	productBFloat16
	extremeBFloat16
	sumFloat32
	productFloat32
	extremeFloat32
	sumFloat64
	productFloat64
	extremeFloat64
	sum8
	sum16
	sum32
	sum64
	product8
	product16
	product32
	product64
	minUint8
	maxUint8
	minInt8
	maxInt8
	minUint16
	maxUint16
	minInt16
	maxInt16
	minInt32
	maxInt32
	minInt64
	maxInt64
	and8 // these combine bits, of any elements
	or8
	xor8
	xorBool

	// Conversions between floats. Their ranges count elements, not bytes.
	float16ToBFloat16
	float16ToFloat32
	float16ToFloat64
	bfloat16ToFloat16
	bfloat16ToFloat32
	bfloat16ToFloat64
	float32ToFloat16
	float32ToBFloat16
	float32ToFloat64
	float64ToFloat16
	float64ToBFloat16
	float64ToFloat32
	// The casts' loops without the conversion: they read the first number of bits of each element, and write the
	// second. Benchmarks compare casts with them. Their ranges count elements, too.
	move16To16
	move16To32
	move16To64
	move32To16
	move32To64
	move64To16
	move64To32

	// A float32 or float64 plus a 16-bit float. Their ranges count elements, too.
	addFloat16To32
	addBFloat16To32
	addFloat16To64
	addBFloat16To64

	// The sums of three dot products, and sums with two factors. Their ranges count elements, too.
	dotFloat16
	dotBFloat16
	dotFloat32
	dotFloat64
	blendFloat16
	blendBFloat16
	blendFloat32
	blendFloat64

	// Integers times a float64. Their ranges count elements, too.
	scaleUint8
	scaleInt8
	scaleUint16
	scaleInt16
	scaleInt32
	scaleInt64

	// Sums of integers times a float64, with products inside an int32 or an int64. Their ranges count elements, too.
	meanUint16
	meanInt16
	meanInt32
	meanInt64
	lookUp8 // sums of bytes, by a table of all products

	numWide // the number of kernels above, 0 included
)

const (
	streamLines kernel = iota + numWide // copies whole lines past the caches

	// Sums of 16-bit integers divided by a power of two; their ranges count elements.
	halveUint16
	halveInt16

	// Float32 as quantised blocks; their ranges count blocks.
	quantise
	addQuantised
	dequantise

	numKernels
)

var kernels = [tensor.NumDTypes][tensor.NumReduceOps]kernel{
	tensor.Uint8: {tensor.Sum: sum8, tensor.Product: product8, tensor.Min: minUint8, tensor.Max: maxUint8,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Int8: {tensor.Sum: sum8, tensor.Product: product8, tensor.Min: minInt8, tensor.Max: maxInt8,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Uint16: {tensor.Sum: sum16, tensor.Product: product16, tensor.Min: minUint16, tensor.Max: maxUint16,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Int16: {tensor.Sum: sum16, tensor.Product: product16, tensor.Min: minInt16, tensor.Max: maxInt16,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Int32: {tensor.Sum: sum32, tensor.Product: product32, tensor.Min: minInt32, tensor.Max: maxInt32,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Int64: {tensor.Sum: sum64, tensor.Product: product64, tensor.Min: minInt64, tensor.Max: maxInt64,
		tensor.BitAnd: and8, tensor.BitOr: or8, tensor.BitXor: xor8},
	tensor.Float16: {tensor.Sum: sumFloat16, tensor.Product: productFloat16, tensor.Min: extremeFloat16,
		tensor.Max: extremeFloat16},
	tensor.Float32: {tensor.Sum: sumFloat32, tensor.Product: productFloat32, tensor.Min: extremeFloat32,
		tensor.Max: extremeFloat32},
	tensor.Float64: {tensor.Sum: sumFloat64, tensor.Product: productFloat64, tensor.Min: extremeFloat64,
		tensor.Max: extremeFloat64},
	tensor.BFloat16: {tensor.Sum: sumBFloat16, tensor.Product: productBFloat16, tensor.Min: extremeBFloat16,
		tensor.Max: extremeBFloat16},
	tensor.Bool: {tensor.Sum: maxUint8, tensor.Product: minUint8, tensor.Min: minUint8, tensor.Max: maxUint8,
		tensor.BitAnd: minUint8, tensor.BitOr: maxUint8, tensor.BitXor: xorBool},
}

// casts has 0 for pairs of types that need no conversion.
var casts = [tensor.NumDTypes][tensor.NumDTypes]kernel{
	tensor.Float16: {tensor.BFloat16: float16ToBFloat16, tensor.Float32: float16ToFloat32,
		tensor.Float64: float16ToFloat64},
	tensor.BFloat16: {tensor.Float16: bfloat16ToFloat16, tensor.Float32: bfloat16ToFloat32,
		tensor.Float64: bfloat16ToFloat64},
	tensor.Float32: {tensor.Float16: float32ToFloat16, tensor.BFloat16: float32ToBFloat16,
		tensor.Float64: float32ToFloat64},
	tensor.Float64: {tensor.Float16: float64ToFloat16, tensor.BFloat16: float64ToBFloat16,
		tensor.Float32: float64ToFloat32},
}

// additions has the type of the sum first.
var additions = [tensor.NumDTypes][tensor.NumDTypes]kernel{
	tensor.Float32: {tensor.Float16: addFloat16To32, tensor.BFloat16: addBFloat16To32},
	tensor.Float64: {tensor.Float16: addFloat16To64, tensor.BFloat16: addBFloat16To64},
}

var (
	dotKernels = [tensor.NumDTypes]kernel{
		tensor.Float16: dotFloat16, tensor.BFloat16: dotBFloat16, tensor.Float32: dotFloat32,
		tensor.Float64: dotFloat64,
	}
	blendKernels = [tensor.NumDTypes]kernel{
		tensor.Float16: blendFloat16, tensor.BFloat16: blendBFloat16, tensor.Float32: blendFloat32,
		tensor.Float64: blendFloat64,
	}
)

// scalings has 0 for types that are no integers.
var scalings = [tensor.NumDTypes]kernel{
	tensor.Uint8: scaleUint8, tensor.Int8: scaleInt8, tensor.Uint16: scaleUint16,
	tensor.Int16: scaleInt16, tensor.Int32: scaleInt32, tensor.Int64: scaleInt64,
}

// means has 0 for types without such a kernel.
var means = [tensor.NumDTypes]kernel{
	tensor.Uint16: meanUint16, tensor.Int16: meanInt16, tensor.Int32: meanInt32, tensor.Int64: meanInt64,
}

func kernelFor(dt tensor.DType, op tensor.ReduceOp) kernel { return kernels[dt][op] }
