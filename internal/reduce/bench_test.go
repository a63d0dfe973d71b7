package reduce

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/tensor"
)

// The sizes of the arrays: two of them are beyond a third-level cache of 64 MiB, or
// within a second-level one of 512 KiB.
var benchSizes = []struct {
	name  string
	bytes int
}{{"cache", 64 << 10}, {"memory", 64 << 20}}

// touched is an array of memory of its own; untouched, it would be the kernel's one
// page of zeros. The numbers are small, so that none is a NaN or a subnormal.
func touched(dt tensor.DType, n int) []byte {
	b := aligned(n, 0)
	for i := 0; i < n; i += dt.Size() {
		x := uint64(1 + i/dt.Size()&63)
		if isFloat(dt) {
			x = floatBits(dt, float64(x))
		}
		putElement(b[i:i+dt.Size()], x)
	}
	return b
}

// BenchmarkMemory is the traffic that a thread can cause: what the others' rates are
// to be compared with. All rates of this file count bytes read and bytes written.
func BenchmarkMemory(b *testing.B) {
	for _, size := range benchSizes {
		x, y := touched(tensor.Int64, size.bytes), touched(tensor.Int64, size.bytes)
		b.Run("copy/"+size.name, func(b *testing.B) {
			b.SetBytes(int64(2 * size.bytes))
			for b.Loop() {
				copy(x, y)
			}
		})
		// The least work on two arrays: one instruction a vector.
		b.Run("or/"+size.name, func(b *testing.B) {
			b.SetBytes(int64(3 * size.bytes))
			srcs := [][]byte{x, y}
			for b.Loop() {
				reduceWith(best, tensor.Bool, tensor.Sum, x, srcs, 1)
			}
		})
	}
}

// BenchmarkReduce combines two arrays in the place of the first.
func BenchmarkReduce(b *testing.B) {
	for dt := range tensor.DType(tensor.NumDTypes) {
		for _, size := range benchSizes {
			x, y := touched(dt, size.bytes), touched(dt, size.bytes)
			srcs := [][]byte{x, y}
			run := func(name string, op tensor.ReduceOp, scale float64) {
				b.Run(fmt.Sprintf("%v/%s/%s", dt, name, size.name), func(b *testing.B) {
					b.SetBytes(int64(3 * size.bytes))
					b.ReportAllocs()
					for b.Loop() {
						reduceWith(best, dt, op, x, srcs, scale)
					}
				})
			}
			// Those first that keep the numbers as they are.
			run("min", tensor.Min, 1)
			run("max", tensor.Max, 1)
			if dt != tensor.Bool {
				run("mean", tensor.Sum, 0.5)
			}
			run("sum", tensor.Sum, 1)
			run("product", tensor.Product, 1)
		}
	}
}

// BenchmarkScale scales in place; BenchmarkCast reads one array and writes another.
func BenchmarkScale(b *testing.B) {
	for dt := range tensor.DType(tensor.NumDTypes) {
		if dt == tensor.Bool {
			continue
		}
		for _, size := range benchSizes {
			x := touched(dt, size.bytes)
			b.Run(fmt.Sprintf("%v/%s", dt, size.name), func(b *testing.B) {
				b.SetBytes(int64(2 * size.bytes))
				for b.Loop() {
					Scale(dt, x, x, 0.9999)
				}
			})
		}
	}
}

func BenchmarkCast(b *testing.B) {
	for _, from := range floats {
		for _, to := range floats {
			if from == to {
				continue
			}
			for _, size := range benchSizes {
				n := size.bytes / max(from.Size(), to.Size())
				src, dst := touched(from, n*from.Size()), touched(to, n*to.Size())
				b.Run(fmt.Sprintf("%v/%v/%s", from, to, size.name), func(b *testing.B) {
					b.SetBytes(int64(len(src) + len(dst)))
					for b.Loop() {
						Cast(to, from, dst, src)
					}
				})
			}
		}
	}
}

// BenchmarkAddCast adds 16-bit floats onto wider ones in place.
func BenchmarkAddCast(b *testing.B) {
	for _, wire := range floats[:2] {
		for _, dt := range floats[2:] {
			for _, size := range benchSizes {
				n := size.bytes / dt.Size()
				x, y := touched(dt, n*dt.Size()), touched(wire, n*2)
				b.Run(fmt.Sprintf("%v/%v/%s", wire, dt, size.name), func(b *testing.B) {
					b.SetBytes(int64(2*len(x) + len(y)))
					for b.Loop() {
						AddCast(dt, wire, x, x, y, 0.5)
					}
				})
			}
		}
	}
}

// BenchmarkAdasum is what Adasum does with each pair of vectors: products, then sum.
func BenchmarkAdasum(b *testing.B) {
	for _, dt := range floats {
		for _, size := range benchSizes {
			x, y := touched(dt, size.bytes), touched(dt, size.bytes)
			b.Run(fmt.Sprintf("dots/%v/%s", dt, size.name), func(b *testing.B) {
				b.SetBytes(int64(2 * size.bytes))
				for b.Loop() {
					Dots(dt, x, y)
				}
			})
			b.Run(fmt.Sprintf("blend/%v/%s", dt, size.name), func(b *testing.B) {
				b.SetBytes(int64(3 * size.bytes))
				for b.Loop() {
					Blend(dt, x, y, 0.5, 0.5)
				}
			})
		}
	}
}
