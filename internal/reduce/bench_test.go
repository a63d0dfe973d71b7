package reduce

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/tensor"
)

// The rate is that of the destination's bytes.
func BenchmarkReduce(b *testing.B) {
	for _, c := range []struct {
		dt    tensor.DType
		op    tensor.ReduceOp
		nsrc  int
		scale float64
	}{
		{tensor.Float32, tensor.Sum, 2, 1},
		{tensor.Float32, tensor.Sum, 2, 0.5},
		{tensor.Float32, tensor.Max, 2, 1},
		{tensor.Float32, tensor.Sum, 8, 1},
		{tensor.Float64, tensor.Sum, 2, 1},
		{tensor.Float16, tensor.Sum, 2, 1},
		{tensor.BFloat16, tensor.Sum, 2, 1},
		{tensor.Int32, tensor.Sum, 2, 1},
		{tensor.Int32, tensor.Sum, 2, 0.5},
		{tensor.Int64, tensor.Sum, 2, 1},
	} {
		for _, size := range []int{64 << 10, 16 << 20} {
			for _, v := range variants() {
				name := fmt.Sprintf("%v/%v/sources=%d/scale=%v/bytes=%d/%v", c.dt, c.op, c.nsrc, c.scale, size, v)
				b.Run(name, func(b *testing.B) {
					dst := aligned(size, 0)
					srcs := make([][]byte, c.nsrc)
					for i := range srcs {
						srcs[i] = aligned(size, 0)
						for k := range srcs[i] { // untouched, it would be the kernel's one page of zeros
							srcs[i][k] = byte(i + k&7)
						}
					}
					copy(dst, srcs[0])
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						reduceWith(v, c.dt, c.op, dst, srcs, c.scale)
					}
				})
			}
		}
	}
}
