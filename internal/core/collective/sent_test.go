package collective

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestSentIsExact checks what each member says it has sent against the bytes that the algorithm's comment promises.
func TestSentIsExact(t *testing.T) {
	const n, counts = 96 << 10, 8 // bytes of a tensor; of an alltoall's count for one member
	shared := func(bytes ...uint64) (all []Sent) {
		for _, b := range bytes {
			all = append(all, Sent{feed.ByMemory: b})
		}
		return all
	}
	comm := func(bytes ...uint64) (all []Sent) {
		for _, b := range bytes {
			all = append(all, Sent{feed.ByTCP: b})
		}
		return all
	}
	both := func(s, c uint64) Sent { return Sent{feed.ByMemory: s, feed.ByTCP: c} }
	add := func(dt tensor.DType, bytes int) func(l *Lane) Op {
		return func(l *Lane) Op {
			return l.Allreduce(dt, tensor.Sum, make([]byte, bytes), make([]byte, bytes), 1)
		}
	}
	parts := func(l *Lane) Op { // with gaps between them, of which nothing is sent
		var p []Part
		for range 5 {
			p = append(p, Part{In: make([]byte, 8196), Out: make([]byte, 8196), Bytes: 8196})
		}
		return l.AllreduceParts(tensor.Float32, tensor.Sum, p, 1, 1)
	}
	equal := func(l *Lane) []int64 {
		c := make([]int64, l.size)
		for m := range c {
			c[m] = n / int64(l.size)
		}
		return c
	}
	gather := func(l *Lane) Op { return l.Allgather(make([]byte, n/l.size), make([]byte, n), equal(l)) }
	scatter := func(l *Lane) Op {
		return l.Reducescatter(tensor.Float32, tensor.Sum, make([]byte, n), make([]byte, n/l.size), equal(l), 1)
	}
	toOne := func(l *Lane) Op {
		out := []byte(nil)
		if l.rank == 1 {
			out = make([]byte, n)
		}
		return l.Reduce(1, tensor.Float32, tensor.Sum, make([]byte, n), out, 1)
	}
	exchange := func(l *Lane) Op { return l.Alltoall(make([]byte, n), equal(l), make([]byte, n), equal(l)) }
	tell := func(l *Lane) Op { return l.AlltoallCounts(make([]int64, l.size), make([]int64, l.size)) }
	cast := func(l *Lane) Op { return l.Broadcast(1, make([]byte, n)) }
	for _, c := range []struct {
		what  string
		o     inproc.Options
		start func(l *Lane) Op
		want  []Sent // by member
	}{
		{"flat allreduce", inproc.Options{Shared: true}, add(tensor.Float32, 400), shared(400, 400, 400)},
		{"allreduce", inproc.Options{Shared: true}, add(tensor.Float32, n), shared(n, n, n)},
		{"allreduce of parts", inproc.Options{Shared: true}, parts, shared(5*8196, 5*8196, 5*8196)},
		{"allgather", inproc.Options{Shared: true}, gather, shared(n/3, n/3, n/3)},
		{"broadcast", inproc.Options{Shared: true}, cast, shared(0, n, 0)},
		{"reducescatter", inproc.Options{Shared: true}, scatter, shared(n/3*2, n/3*2, n/3*2)},
		{"reduce", inproc.Options{Shared: true}, toOne, shared(n, n-n/3, n)},
		{"alltoall", inproc.Options{Shared: true}, exchange, shared(n/3*2, n/3*2, n/3*2)},
		{"barrier", inproc.Options{Shared: true}, (*Lane).Barrier, shared(0, 0, 0)},
		{"one member", inproc.Options{Shared: true}, add(tensor.Float32, n), shared(0)},
		{"two members", inproc.Options{}, add(tensor.Float32, 400), comm(400, 400)},
		{"allreduce in a ring", inproc.Options{}, add(tensor.Float32, 30*n), comm(40*n, 40*n, 40*n)},
		{"allgather in a ring", inproc.Options{}, gather, comm(n/3*2, n/3*2, n/3*2)},
		{"alltoall", inproc.Options{}, exchange, comm(n/3*2, n/3*2, n/3*2)},
		{"counts", inproc.Options{}, tell, comm(2*counts, 2*counts, 2*counts)},
		{"hosts", inproc.Options{Hosts: [][]int{{0, 1}, {2, 3}}}, add(tensor.Float32, 64*n), []Sent{both(64*n, 32*n),
			both(64*n, 32*n), both(64*n, 32*n), both(64*n, 32*n)}},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.what, len(c.want)), func(t *testing.T) {
			g := newGroup(t, len(c.want), c.o)
			const times = 3
			j := job{name: c.what, start: c.start, check: func(int) error { return nil }}
			for range times {
				g.runScheduled(t, random(t), []job{j})
			}
			for m, l := range g.lanes {
				want := c.want[m]
				for way := range want {
					want[way] *= times
				}
				if got := l.Sent(); got != want {
					t.Errorf("member %d: %v, not %v", m, got, want)
				}
			}
		})
	}
}
