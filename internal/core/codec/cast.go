package codec

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

func init() {
	register(tensor.WireFloat16, cast(tensor.Float16))
	register(tensor.WireBFloat16, cast(tensor.BFloat16))
}

// cast sends each number as one of another type. It keeps no errors.
type cast tensor.DType

func (c cast) Block() int { return 1 }

func (c cast) Bytes(_ tensor.DType, n int) int { return n * tensor.DType(c).Size() }

func (c cast) Encode(dt tensor.DType, dst, src, _ []byte) { reduce.Cast(tensor.DType(c), dt, dst, src) }

// Decode is used with the scale 1 alone: sums are scaled before they are rounded for the last time.
func (c cast) Decode(dt tensor.DType, dst, src []byte, scale float64) {
	reduce.Cast(dt, tensor.DType(c), dst, src)
	if scale != 1 {
		reduce.Scale(dt, dst, dst, scale)
	}
}

func (c cast) Add(dt tensor.DType, dst, own, src []byte, scale float64) {
	reduce.AddCast(dt, tensor.DType(c), dst, own, src, scale)
}
