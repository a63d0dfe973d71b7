package reduce

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/cachesize"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The sizes of the arrays: two of them are within a second-level cache of 512 KiB, or together four
// times as large as the last cache (1 GiB is enough).
var benchSizes = []struct {
	name  string
	bytes int
}{{"cache", 64 << 10}, {"memory", min(max(2*cachesize.Last()&^(1<<20-1), 64<<20), 512<<20)}}

// touched returns an array with memory of its own. Untouched memory would be the kernel's one page of zeros. The
// numbers are small, so that none is a NaN or a subnormal.
func touched(dt tensor.DType, n int) []byte {
	b := aligned(n, 0)
	first := min(64*dt.Size(), n)
	for i := 0; i < first; i += dt.Size() {
		x := uint64(1 + i/dt.Size())
		if isFloat(dt) {
			x = floatBits(dt, float64(x))
		}
		putElement(b[i:i+dt.Size()], x)
	}
	for done := first; done < n; done *= 2 {
		copy(b[done:], b[:done])
	}
	return b
}

// measure runs f, which causes traffic bytes of memory traffic: the bytes that it reads and those that it writes. Bytes
// that it writes without reading count twice, because a processor fetches a line before it changes the line. Beyond the
// caches f takes turns with the least work on two arrays, one instruction a vector, because other work on the machine
// changes the speed of the memory. "%memory" is the median of f's rate over that of the next turn, and ns/op and MB/s
// come from f's median time. All times are the thread's time on the processor, so the ratios hold beside other work.
func measure(b *testing.B, size, traffic int, f func()) { measureBeside(b, size, traffic, f, nil) }

// measureBeside is measure, with limit, if that is not nil: a function with the same traffic that computes nothing. It
// has its turn after f, and "%limit" is the median of its time over f's. Both turns come after one of the least work,
// so the caches are alike.
func measureBeside(b *testing.B, size, traffic int, f, limit func()) {
	f() // warm the caches
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	report := func(seconds float64) {
		b.ReportMetric(1e9*seconds, "ns/op")
		b.ReportMetric(float64(traffic)/seconds/1e6, "MB/s")
	}
	if size < benchSizes[len(benchSizes)-1].bytes {
		report(timeOf(func() {
			for b.Loop() {
				f()
			}
		}) / float64(b.N))
		return
	}
	x, y := limitArrays()
	least := func() { reduceWith(best, tensor.Int64, tensor.Sum, x, [][]byte{x, y}, 1) }
	least()
	var times, ofMemory, ofLimit []float64
	for b.Loop() {
		ours, theirs := timeOf(f), timeOf(least)
		times = append(times, ours)
		ofMemory = append(ofMemory, 100*float64(traffic)/ours*theirs/float64(3*len(x)))
		if limit != nil {
			ofLimit = append(ofLimit, 100*timeOf(limit)/ours)
			least()
		}
	}
	report(median(times))
	b.ReportMetric(median(ofMemory), "%memory")
	if limit != nil {
		b.ReportMetric(median(ofLimit), "%limit")
	}
}

// timeOf returns the thread's time in f, in seconds.
func timeOf(f func()) float64 {
	began := threadTime()
	f()
	return (threadTime() - began).Seconds()
}

// median sorts v, and returns the element in the middle.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

var limitArrays = sync.OnceValues(func() (x, y []byte) {
	n := benchSizes[len(benchSizes)-1].bytes
	return touched(tensor.Int64, n), touched(tensor.Int64, n)
})

// BenchmarkCopy is Go's copy, for comparison: it may write past the cache, without
// fetching lines.
func BenchmarkCopy(b *testing.B) {
	for _, size := range benchSizes {
		x, y := touched(tensor.Int64, size.bytes), touched(tensor.Int64, size.bytes)
		b.Run(size.name, func(b *testing.B) {
			measure(b, size.bytes, 2*size.bytes, func() { copy(x, y) })
		})
	}
}

// BenchmarkReduce combines two arrays in the place of the first.
func BenchmarkReduce(b *testing.B) {
	for dt := range tensor.DType(tensor.NumReducible) {
		for _, size := range benchSizes {
			x, y := touched(dt, size.bytes), touched(dt, size.bytes)
			srcs := [][]byte{x, y}
			run := func(name string, op tensor.ReduceOp, scale float64) {
				b.Run(fmt.Sprintf("%v/%s/%s", dt, name, size.name), func(b *testing.B) {
					b.ReportAllocs()
					measure(b, size.bytes, 3*size.bytes, func() { reduceWith(best, dt, op, x, srcs, scale) })
				})
			}
			// First the operations that keep the numbers.
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

// BenchmarkScale scales in place.
func BenchmarkScale(b *testing.B) {
	for dt := range tensor.DType(tensor.NumReducible) {
		if dt == tensor.Bool {
			continue
		}
		for _, size := range benchSizes {
			x := touched(dt, size.bytes)
			b.Run(fmt.Sprintf("%v/%s", dt, size.name), func(b *testing.B) {
				measure(b, size.bytes, 2*size.bytes, func() { Scale(dt, x, x, 0.9999) })
			})
		}
	}
}

// BenchmarkCast reads one array and writes another.
func BenchmarkCast(b *testing.B) {
	for _, from := range floats {
		for _, to := range floats {
			if from == to {
				continue
			}
			for _, size := range benchSizes {
				n := size.bytes / max(from.Size(), to.Size())
				src, dst := touched(from, n*from.Size()), touched(to, n*to.Size())
				for _, v := range variants() {
					b.Run(fmt.Sprintf("%v/%v/%s/%v", from, to, size.name, v), func(b *testing.B) {
						var limit func()
						if v != portable {
							limit = func() { moveWith(v, to, from, dst, src) }
						}
						measureBeside(b, size.bytes, len(src)+2*len(dst), func() { castWith(v, to, from, dst, src) },
							limit)
					})
				}
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
					measure(b, size.bytes, 2*len(x)+len(y), func() { AddCast(dt, wire, x, x, y, 0.5) })
				})
			}
		}
	}
}

// BenchmarkAdasum is Adasum's work on each pair of vectors: products, then sum.
func BenchmarkAdasum(b *testing.B) {
	for _, dt := range floats {
		for _, size := range benchSizes {
			x, y := touched(dt, size.bytes), touched(dt, size.bytes)
			b.Run(fmt.Sprintf("dots/%v/%s", dt, size.name), func(b *testing.B) {
				measure(b, size.bytes, 2*size.bytes, func() { Dots(dt, x, y) })
			})
			b.Run(fmt.Sprintf("blend/%v/%s", dt, size.name), func(b *testing.B) {
				measure(b, size.bytes, 3*size.bytes, func() { Blend(dt, x, y, 0.5, 0.5) })
			})
		}
	}
}
