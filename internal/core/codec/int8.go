package codec

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

func init() { register(tensor.WireInt8, int8s{}) }

// int8s sends blocks of float32 as integers of 8 bits with a common scale: see reduce.Quantise.
type int8s struct{}

func (int8s) Block() int { return reduce.BlockElements }

func (int8s) Bytes(_ tensor.DType, n int) int { return reduce.Quantised(n) }

func (int8s) Encode(_ tensor.DType, dst, src, rest []byte) { reduce.Quantise(dst, src, rest) }

func (int8s) Decode(_ tensor.DType, dst, src []byte, scale float64) {
	reduce.Dequantise(dst, src, float32(scale))
}

func (int8s) Add(dt tensor.DType, dst, own, src []byte, scale float64) {
	if len(dst) > 0 && &dst[0] != &own[0] {
		copy(dst, own)
	}
	reduce.AddQuantised(dst, src)
	if scale != 1 {
		reduce.Scale(dt, dst, dst, scale)
	}
}
