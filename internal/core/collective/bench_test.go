package collective

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// BenchmarkAllreduceShared is an in-place float32 sum of two members. The rate is the bytes of one tensor, divided by
// the time.
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
	benchmarkShared(b, size, n, n, o, func(l *Lane, in, _ []byte) Op {
		return l.Allreduce(tensor.Float32, tensor.Sum, in, in, 1)
	})
}

// BenchmarkShared runs the other operations over Shared. The rate is the longer of a member's input and output, divided
// by the time. "copy" is the limit: each member alone copies that length within its own memory.
func BenchmarkShared(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, n := range []int{64 << 10, 1 << 20, 64 << 20} {
			counts := make([]int64, size)
			for m := range counts {
				counts[m] = int64(n / size)
			}
			part := n / size
			for _, c := range []struct {
				name    string
				in, out int
				start   func(l *Lane, in, out []byte) Op
			}{
				{"copy", n, n, func(l *Lane, in, out []byte) Op { copy(out, in); return &l.ended }},
				{"allgather", part, n, func(l *Lane, in, out []byte) Op { return l.Allgather(in, out, counts) }},
				{"broadcast", n, 0, func(l *Lane, in, _ []byte) Op { return l.Broadcast(0, in) }},
				{"alltoall", n, n, func(l *Lane, in, out []byte) Op { return l.Alltoall(in, counts, out, counts) }},
				{"reducescatter", n, part, func(l *Lane, in, out []byte) Op {
					return l.Reducescatter(tensor.Float32, tensor.Sum, in, out, counts, 1)
				}},
			} {
				b.Run(fmt.Sprintf("members=%d/bytes=%d/%s", size, n, c.name), func(b *testing.B) {
					benchmarkShared(b, size, c.in, c.out, inproc.Options{Shared: true}, c.start)
				})
			}
		}
	}
}

// benchmarkShared runs one operation over and over on all members, each with an
// input and an output of its own.
func benchmarkShared(b *testing.B, size, in, out int, o inproc.Options, start func(l *Lane, in, out []byte) Op) {
	networks := inproc.NewWorld(size, o)
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	lanes := make([]*Lane, size)
	ins, outs := make([][]byte, size), make([][]byte, size)
	for r := range lanes {
		l, err := networks[r].OpenLane(0, 0, members)
		if err != nil {
			b.Fatal(err)
		}
		lanes[r] = NewLane(l, Options{})
		ins[r], outs[r] = make([]byte, in), make([]byte, out)
		for i := 0; i < in; i += 1 << 10 { // untouched memory would be one page of zeros
			ins[r][i] = 1
		}
		clear(outs[r])
	}
	b.SetBytes(int64(max(in, out)))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for r, l := range lanes {
		wg.Go(func() {
			for range b.N {
				drive(start(l, ins[r], outs[r]), networks[r].Bell(), size > runtime.GOMAXPROCS(0))
			}
		})
	}
	wg.Wait()
}

// drive polls op as an engine does: it spins for a while, or yields where others need the core, and then sleeps.
func drive(op Op, bell transport.Bell, crowded bool) {
	polls := 20_000
	if crowded {
		polls = 20
	}
	for {
		for range polls {
			if done, _ := op.Advance(); done {
				return
			}
			if crowded {
				runtime.Gosched()
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
