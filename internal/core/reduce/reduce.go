// Package reduce combines equally long arrays element by element: sums, products, minima and maxima of every element
// type, AND, OR and XOR of the bits of integers, scaling, and conversions between the floats. The collectives call it
// on memory that may be shared with other processes. It owns no memory, allocates none, and never blocks. All
// functions may be called from any goroutine.
//
// There are several implementations (portable Go, AVX2, AVX-512). At start-up the package chooses the best that the
// processor has. All give the same bits:
//
//   - An element's result is ((x0 op x1) op x2) …, in the order of the sources. The 16-bit floats are combined and
//     scaled in float32, and rounded once, to nearest even. float32 and narrower are scaled by the float32 nearest the
//     scale.
//   - If an operand is a NaN, so is the result, in Min and Max too. A NaN result is always the quiet NaN with sign and
//     payload zero, because processors differ in the operand whose payload survives.
//   - Min and Max order -0 before +0.
//   - Integer sums and products wrap. Scaling an integer multiplies in float64,
//     truncates toward zero, saturates at the type's limits, and makes 0 of a NaN.
//   - A bool is true if its byte is not zero. Results are 0 or 1. Sum, Max and BitOr are
//     OR, Product, Min and BitAnd are AND. BitXor is XOR.
//   - One source and scale 1 make a copy, bit for bit (but see bool).
//
// The assembly does not depend on the thread's floating-point mode either: a library that lets its threads flush
// subnormals to zero changes nothing here. The race detector does not see the assembly's reads and writes.
package reduce

import (
	"fmt"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Check returns nil if op is defined for elements of type dt, otherwise an error with the reason. Average and Adasum
// are not elementwise, so they are errors for each type.
func Check(dt tensor.DType, op tensor.ReduceOp) error {
	if !dt.Valid() {
		return fmt.Errorf("reduce: unknown element type %v", dt)
	}
	if dt.IsFloat8() {
		return fmt.Errorf("reduce: elements of type %v only move in host memory", dt)
	}
	switch op {
	case tensor.Sum, tensor.Min, tensor.Max, tensor.Product:
		return nil
	case tensor.BitAnd, tensor.BitOr, tensor.BitXor:
		if isFloat(dt) {
			return fmt.Errorf("reduce: %v is for integers and bool, not for %v", op, dt)
		}
		return nil
	case tensor.Average, tensor.Adasum:
		return fmt.Errorf("reduce: %v is not an elementwise operation", op)
	}
	return fmt.Errorf("reduce: unknown operation %v", op)
}

// CheckScale returns nil if elements of type dt can be multiplied by factor, otherwise an error with the reason. Only
// bool cannot, except by 1.
func CheckScale(dt tensor.DType, factor float64) error {
	if !dt.Valid() {
		return fmt.Errorf("reduce: unknown element type %v", dt)
	}
	if dt == tensor.Bool && factor != 1 {
		return fmt.Errorf("reduce: bool elements cannot be scaled (by %v)", factor)
	}
	return nil
}

// Reduce sets dst = scale × (srcs[0] op srcs[1] op …), element by element, by the rules in the package comment. There
// must be at least one source. Each must have the length of dst, which must be a multiple of the element's size. The
// arrays need no alignment. dst may be the same memory as any source, but must not overlap one partially. Arguments
// that break these rules, or that Check or CheckScale refuse, are a panic.
func Reduce(dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	reduceWith(best, dt, op, dst, srcs, scale)
}

// Scale sets dst = src × factor, as Reduce with one source does. dst may be src.
func Scale(dt tensor.DType, dst, src []byte, factor float64) {
	srcs := [1][]byte{src}
	reduceWith(best, dt, tensor.Sum, dst, srcs[:], factor)
}

// A variant is an implementation of the kernels.
type variant uint8

const (
	portable variant = iota
	avx2
	avx512

	numVariants
)

func (v variant) String() string {
	return [numVariants]string{"portable", "avx2", "avx512"}[v]
}

const (
	// callBytes bounds the source bytes that one call of assembly reads, because the scheduler and the garbage
	// collector cannot interrupt a call.
	callBytes = 1 << 20

	// scaleBytes is the number of bytes of an integer array that are reduced before they are scaled. They fit into the
	// first-level cache.
	scaleBytes = 16 << 10
)

// reduceWith is Reduce by the given variant, which the processor must have.
func reduceWith(v variant, dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	check(dt, op, dst, srcs, scale)
	if len(dst) == 0 {
		return
	}
	if len(srcs) == 1 && scale == 1 && dt != tensor.Bool {
		copy(dst, srcs[0])
		return
	}
	k := kernelFor(dt, op)
	switch {
	case v == portable:
		reducePortable(dt, op, dst, srcs, scale)
	case isFloat(dt) || scale == 1:
		runKernel(v, k, dt, op, dst, srcs, scale)
	case len(srcs) == 1:
		done := meanWith(v, dt, dst, srcs, scale)
		scaleWith(v, dt, dst[done:], srcs[0][done:], scale)
	default:
		done := 0
		if op == tensor.Sum {
			done = meanWith(v, dt, dst, srcs, scale)
		}
		for off := done; off < len(dst); off += scaleBytes {
			end := min(off+scaleBytes, len(dst))
			runKernelRange(v, k, dt, op, dst, srcs, 1, off, end)
			scaleWith(v, dt, dst[off:end], dst[off:end], scale)
		}
	}
}

// runKernel runs k over the whole of dst, in short calls.
func runKernel(v variant, k kernel, dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	step := max(callBytes/len(srcs)&^63, 4096)
	for off := 0; off < len(dst); off += step {
		runKernelRange(v, k, dt, op, dst, srcs, scale, off, min(off+step, len(dst)))
	}
}

func isFloat(dt tensor.DType) bool {
	switch dt {
	case tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64:
		return true
	}
	return false
}

func check(dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	if err := Check(dt, op); err != nil {
		panic(err)
	}
	if err := CheckScale(dt, scale); err != nil {
		panic(err)
	}
	if len(dst)%dt.Size() != 0 {
		panic(fmt.Sprintf("reduce: %d bytes are not whole elements of type %v", len(dst), dt))
	}
	if len(srcs) == 0 {
		panic("reduce: no source")
	}
	for i, s := range srcs {
		if len(s) != len(dst) {
			panic(fmt.Sprintf("reduce: source %d has %d bytes, the destination %d", i, len(s), len(dst)))
		}
	}
}

// bytesOf views s as bytes, in the processor's order.
func bytesOf[T number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
