package engine

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// benchWorld is a world as jobs have it, in one process.
func benchWorld(b *testing.B, size int) []*Engine {
	engines := make([]*Engine, size)
	for r, n := range inproc.NewWorld(size, inproc.Options{Shared: true, Cards: 1024}) {
		e, err := New(&counting{Network: n}, Options{Rank: r, Size: size, FusionThreshold: 128 << 20,
			CacheCapacity: 1024, Spin: true, OneHost: true})
		if err != nil {
			b.Fatal(err)
		}
		engines[r] = e
	}
	b.Cleanup(func() { each(engines, func(r int, e *Engine) { e.Shutdown(limit) }) })
	return engines
}

// benchmarkTensors sums tensors of the given lengths in bytes, all submitted before any is waited for. The allocations
// are the sum over both ranks and all tensors.
func benchmarkTensors(b *testing.B, lengths []int) {
	engines := benchWorld(b, 2)
	total := 0
	ops := make([][]*Op, len(engines))
	pending := make([][]*Entry, len(engines))
	for i, n := range lengths {
		total += n
		for r := range ops {
			ops[r] = append(ops[r], sum(fmt.Sprint("tensor ", i), make([]byte, n)))
			ops[r][i].WillWait = len(lengths) == 1
		}
	}
	steps := func(n int) {
		each(engines, func(r int, e *Engine) {
			for range n {
				pending[r] = pending[r][:0]
				for _, op := range ops[r] {
					en, err := e.Enqueue(op)
					if err != nil {
						b.Error(err)
						return
					}
					pending[r] = append(pending[r], en)
				}
				for _, en := range pending[r] {
					if !e.Wait(en, limit) || en.Err() != nil {
						b.Error(en.Name(), en.Err())
						return
					}
					en.Release()
				}
			}
		})
	}
	steps(3) // negotiate all, and let every buffer grow
	b.SetBytes(int64(total))
	b.ReportAllocs()
	looks, wakeUps := rests(engines)
	b.ResetTimer()
	steps(b.N)
	looksAfter, wakeUpsAfter := rests(engines)
	b.ReportMetric(float64(looksAfter-looks)/float64(b.N), "looks/op")
	b.ReportMetric(float64(wakeUpsAfter-wakeUps)/float64(b.N), "wakeups/op")
}

// rests returns how often the engines of benchWorld have looked, and how often their drivers have woken. These numbers
// show a change of the policy on a machine on which times do not.
func rests(engines []*Engine) (looks, wakeUps int64) {
	for _, e := range engines {
		looks += e.net.(*counting).looks.Load()
		wakeUps += e.Counters().WakeUps.Load()
	}
	return looks, wakeUps
}

// BenchmarkAllreduce has one tensor at a time.
func BenchmarkAllreduce(b *testing.B) {
	for _, n := range []int{4, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) { benchmarkTensors(b, []int{n}) })
	}
}

// BenchmarkFusedAllreduce has many tensors, which fuse as they come.
func BenchmarkFusedAllreduce(b *testing.B) {
	for _, c := range []struct{ tensors, bytes int }{{1000, 4}, {160, 4 << 10}, {160, 256 << 10}} {
		b.Run(fmt.Sprintf("tensors=%d/bytes=%d", c.tensors, c.bytes), func(b *testing.B) {
			lengths := make([]int, c.tensors)
			for i := range lengths {
				lengths[i] = c.bytes
			}
			benchmarkTensors(b, lengths)
		})
	}
}
