//go:build !amd64

package reduce

import "github.com/gorovod/gorovod/internal/base/tensor"

const best = portable

func available(v variant) bool { return v == portable }

// runKernelRange has no assembly to call: no variant but portable is available.
func runKernelRange(v variant, _ kernel, _ tensor.DType, _ tensor.ReduceOp, _ []byte, _ [][]byte, _ float64, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func addRange(v variant, _, _ tensor.DType, _ []byte, _ [][]byte, _ float64, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func castRange(v variant, _ kernel, _ []byte, _ [][]byte, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func scaleRange(v variant, _ kernel, _ []byte, _ [][]byte, _, _, _ float64, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func looksUp(variant) bool { return false }

func averages(variant, kernel) bool { return false }

func meanRange(v variant, _ kernel, _ []byte, _ [][]byte, _ float64, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func halveRange(kernel, []byte, [][]byte, int, int, int) {
	panic("reduce: no kernels on this processor")
}

func lookUpRange(v variant, _ []byte, _ [][]byte, _ *[256]byte, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func blockRange(kernel, []byte, [][]byte, float32, int) {
	panic("reduce: no kernels on this processor")
}

func dotRange(v variant, _ kernel, _ *dots, _ [][]byte, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func blendRange(v variant, _ kernel, _ tensor.DType, _ [][]byte, _, _ float64, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}

func streamRange(v variant, _ []byte, _ [][]byte, _, _ int) {
	panic("reduce: no " + v.String() + " kernels on this processor")
}
