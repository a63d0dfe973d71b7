package reduce

import "github.com/gorovod/gorovod/internal/tensor"

// A kernel is a loop in assembly. Its number is its place in the table of
// kernels_amd64.s.
type kernel uint8

const (
	noKernel kernel = iota

	// These have a form in AVX-512, too.
	sumFloat16
	productFloat16
	extremeFloat16 // minimum, or maximum by flipping signs
	sumBFloat16
	productBFloat16
	extremeBFloat16

	numHalves // of the above, noKernel included
)

const (
	sumFloat32 kernel = iota + numHalves
	productFloat32
	extremeFloat32
	sumFloat64
	productFloat64
	extremeFloat64

	sum8
	sum16
	sum32
	sum64
	product16
	product32
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

	numKernels
)

// kernels has noKernel where portable Go must do.
var kernels = [tensor.NumDTypes][tensor.NumReduceOps]kernel{
	tensor.Uint8:    {tensor.Sum: sum8, tensor.Min: minUint8, tensor.Max: maxUint8},
	tensor.Int8:     {tensor.Sum: sum8, tensor.Min: minInt8, tensor.Max: maxInt8},
	tensor.Uint16:   {tensor.Sum: sum16, tensor.Product: product16, tensor.Min: minUint16, tensor.Max: maxUint16},
	tensor.Int16:    {tensor.Sum: sum16, tensor.Product: product16, tensor.Min: minInt16, tensor.Max: maxInt16},
	tensor.Int32:    {tensor.Sum: sum32, tensor.Product: product32, tensor.Min: minInt32, tensor.Max: maxInt32},
	tensor.Int64:    {tensor.Sum: sum64, tensor.Min: minInt64, tensor.Max: maxInt64},
	tensor.Float16:  {tensor.Sum: sumFloat16, tensor.Product: productFloat16, tensor.Min: extremeFloat16, tensor.Max: extremeFloat16},
	tensor.Float32:  {tensor.Sum: sumFloat32, tensor.Product: productFloat32, tensor.Min: extremeFloat32, tensor.Max: extremeFloat32},
	tensor.Float64:  {tensor.Sum: sumFloat64, tensor.Product: productFloat64, tensor.Min: extremeFloat64, tensor.Max: extremeFloat64},
	tensor.BFloat16: {tensor.Sum: sumBFloat16, tensor.Product: productBFloat16, tensor.Min: extremeBFloat16, tensor.Max: extremeBFloat16},
	tensor.Bool:     {tensor.Sum: maxUint8, tensor.Product: minUint8, tensor.Min: minUint8, tensor.Max: maxUint8},
}

func kernelFor(dt tensor.DType, op tensor.ReduceOp) kernel { return kernels[dt][op] }
