package collective

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/inproc"
)

// BenchmarkAllreduceShared is an in-place float32 sum of two members. The rate
// is the bytes of one tensor by the time.
func BenchmarkAllreduceShared(b *testing.B) {
	for _, n := range []int{4, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmarkAllreduce(b, 2, n, inproc.Options{Shared: true})
		})
	}
}

func BenchmarkAllreduceComm(b *testing.B) {
	for _, n := range []int{4, 256 << 10, 64 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmarkAllreduce(b, 2, n, inproc.Options{})
		})
	}
}

func benchmarkAllreduce(b *testing.B, size, n int, o inproc.Options) {
	networks := inproc.NewWorld(size, o)
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	lanes := make([]*Lane, size)
	tensors := make([][]byte, size)
	for r := range lanes {
		l, err := networks[r].OpenLane(0, 0, members)
		if err != nil {
			b.Fatal(err)
		}
		lanes[r] = NewLane(l, Options{})
		tensors[r] = make([]byte, n)
		clear(tensors[r]) // touch
	}
	b.SetBytes(int64(n))
	b.ResetTimer()
	var wg sync.WaitGroup
	for r, l := range lanes {
		wg.Go(func() {
			for range b.N {
				op := l.Allreduce(tensor.Float32, tensor.Sum, tensors[r], tensors[r], 1)
				drive(op, networks[r].Bell())
			}
		})
	}
	wg.Wait()
}

// drive polls op as an engine does: it spins for a while, then sleeps.
func drive(op Op, bell transport.Bell) {
	for {
		for range 5000 {
			if done, _ := op.Advance(); done {
				return
			}
		}
		ticket := bell.Arm()
		if done, _ := op.Advance(); done {
			bell.Disarm()
			return
		}
		bell.Sleep(ticket, time.Second)
	}
}
