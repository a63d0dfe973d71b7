package collective

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// BenchmarkAllreduceFloor is an in-place float32 sum of as many bytes as ResNet-50 has gradients, of more members than
// threads. The members work in turn: nobody waits, sleeps or is switched to. Processes on as many cores take longer;
// the difference is the price of switching between them.
func BenchmarkAllreduceFloor(b *testing.B) {
	for _, c := range []struct{ members, threads int }{{2, 2}, {4, 2}, {8, 2}} {
		b.Run(fmt.Sprintf("members=%d/threads=%d", c.members, c.threads), func(b *testing.B) {
			benchmarkFloor(b, c.members, c.threads, 102_228_128)
		})
	}
}

func benchmarkFloor(b *testing.B, size, threads, n int) {
	networks := inproc.NewWorld(size, inproc.Options{Shared: true})
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	lanes, data := make([]*Lane, size), make([][]byte, size)
	for r := range lanes {
		l, err := networks[r].OpenLane(0, 0, members)
		if err != nil {
			b.Fatal(err)
		}
		lanes[r], data[r] = NewLane(l, Options{}), make([]byte, n)
		for i := 0; i < n; i += 1 << 10 {
			data[r][i] = 1
		}
	}
	b.SetBytes(int64(n))
	b.ResetTimer()
	var wg sync.WaitGroup
	for first := range threads {
		wg.Go(func() {
			ops := make([]Op, size)
			for range b.N {
				left := 0
				for r := first; r < size; r += threads {
					ops[r] = lanes[r].Allreduce(tensor.Float32, tensor.Sum, data[r], data[r], 1)
					left++
				}
				for left > 0 {
					for r := first; r < size; r += threads {
						if ops[r] == nil {
							continue
						}
						if done, _ := ops[r].Advance(); done {
							ops[r] = nil
							left--
						}
					}
				}
			}
		})
	}
	wg.Wait()
}
