package collective

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// The form that is chosen over several hosts, by model and by hint. The blocks have their default sizes.
func TestChoiceOverHosts(t *testing.T) {
	equal, unequal := [][]int{{0, 1}, {2, 3}}, [][]int{{0}, {1, 2}}
	interleaved, alone := [][]int{{0, 2}, {1, 3}}, [][]int{{0}, {1}, {2}}
	const (
		little = 64
		much   = 4 << 20
	)
	allreduce := func(n int) func(l *Lane) Op {
		return func(l *Lane) Op {
			b := make([]byte, n)
			return l.Allreduce(tensor.Float32, tensor.Sum, b, b, 1)
		}
	}
	counts := func(l *Lane, each int64) []int64 {
		c := make([]int64, l.size)
		for m := range c {
			c[m] = each
		}
		return c
	}
	gather := func(l *Lane) Op { return l.Allgather(make([]byte, 8), make([]byte, 8*l.size), counts(l, 8)) }
	scatter := func(l *Lane) Op {
		return l.Reducescatter(tensor.Float32, tensor.Sum, make([]byte, 8*l.size), make([]byte, 8), counts(l, 8), 1)
	}
	broadcast := func(l *Lane) Op { return l.Broadcast(1, make([]byte, little)) }
	alltoall := func(l *Lane) Op {
		b := make([]byte, 8*l.size)
		return l.Alltoall(b, counts(l, 8), make([]byte, len(b)), counts(l, 8))
	}
	for _, c := range []struct {
		hosts   [][]int
		options Options
		start   func(l *Lane) Op
		want    string
	}{
		{equal, Options{}, allreduce(little), "allreduceReplicated"},
		{equal, Options{}, allreduce(much), "allreduceHierarchical"},
		{interleaved, Options{}, allreduce(much), "allreduceHierarchical"},
		{unequal, Options{}, allreduce(little), "allreduceHierarchical"},
		{equal, Options{Allreduce: Flat}, allreduce(much), "ring"},
		{equal, Options{Allreduce: Flat, Deterministic: true}, allreduce(much), "allreduceDirect"},
		{equal, Options{Allreduce: Hierarchical}, allreduce(much), "allreduceHierarchical"},
		{alone, Options{Allreduce: Hierarchical}, allreduce(much), "ring"},
		{alone, Options{Deterministic: true}, allreduce(little), "allreduceDirect"},
		{equal, Options{}, gather, "allgatherHierarchical"},
		{unequal, Options{}, gather, "allgatherHierarchical"},
		{interleaved, Options{Allgather: Hierarchical}, gather, "ring"},
		{equal, Options{Allgather: Flat}, gather, "ring"},
		{interleaved, Options{}, scatter, "reducescatterHierarchical"},
		{unequal, Options{}, scatter, "reducescatterExchange"},
		{unequal, Options{Deterministic: true}, scatter, "reducescatterWhole"},
		{unequal, Options{Allreduce: Flat, Deterministic: true}, scatter, "allreduceDirect"},
		{equal, Options{Allreduce: Flat}, scatter, "reducescatterExchange"},
		{unequal, Options{Allreduce: Flat, Allgather: Flat}, broadcast, "broadcastHierarchical"},
		{equal, Options{}, (*Lane).Barrier, "barrierHierarchical"},
		{alone, Options{}, (*Lane).Barrier, "barrierDissemination"},
		{equal, Options{}, alltoall, "alltoallPairwise"},
	} {
		g := newGroup(t, sizeOf(c.hosts), inproc.Options{Hosts: c.hosts}, c.options)
		if h := g.lanes[0].hier; h != nil {
			h.block, h.least = leastOfBlock, leastShard
		}
		if got := strings.TrimPrefix(fmt.Sprintf("%T", c.start(g.lanes[0])), "*collective."); got != c.want {
			t.Errorf("%v, %+v: %s, want %s", c.hosts, c.options, got, c.want)
		}
	}
}

// Each model's choice is the same on all members, whatever their hosts.
func TestFormIsTheSameEverywhere(t *testing.T) {
	for _, hosts := range topologies {
		g := newGroup(t, sizeOf(hosts), inproc.Options{Hosts: hosts})
		for n := 4; n < 64<<20; n *= 2 {
			want := g.lanes[0].allreduceForm(n, n)
			for r, l := range g.lanes {
				if got := l.allreduceForm(n, n); got != want {
					t.Errorf("%v, %d bytes: form %d on rank %d, %d on rank 0", hosts, n, got, r, want)
				}
			}
		}
	}
}

// countedComm counts the bytes sent to other hosts.
type countedComm struct {
	transport.Comm
	host  map[int]int // by member
	bytes *int
}

func (c *countedComm) Send(to int, p []byte) {
	if c.host[to] != c.host[c.Rank()] {
		*c.bytes += len(p)
	}
	c.Comm.Send(to, p)
}

// A host sends no more than 2n(H-1)/H of an allreduce's n bytes, n(H-1)/H of a
// reducescatter's, and its own contributions to each other host of an allgather's.
func TestBytesBetweenHosts(t *testing.T) {
	hosts := [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}
	host := make(map[int]int)
	for h, members := range hosts {
		for _, m := range members {
			host[m] = h
		}
	}
	const n, size = 9 * 96 << 10, 9
	rng := random(t)
	counts, elems := make([]int64, size), make([]int, size)
	for m := range counts {
		counts[m], elems[m] = n/size, n/size/4
	}
	for _, c := range []struct {
		name  string
		job   func() job
		limit int // bytes
	}{
		{"allreduce", func() job {
			a := algorithm{"chosen", always, chosen}
			return allreduceJob(rng, a, size, tensor.Int32, tensor.Sum, n/4, true, true)
		}, 2 * n * 2 / 3},
		{"reducescatter", func() job {
			a := scatterAlgorithm{"chosen", false, chosenScatter}
			return reducescatterJob(rng, a, tensor.Int32, tensor.Sum, elems)
		}, n * 2 / 3},
		{"allgather", func() job { return allgatherJob(rng, counts, false) }, n * 2 / 3},
	} {
		for _, deterministic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deterministic: %v", c.name, deterministic), func(t *testing.T) {
				g := newGroup(t, size, inproc.Options{Hosts: hosts}, Options{Deterministic: deterministic})
				sent := make([]int, len(hosts))
				for r, l := range g.lanes {
					l.piece, l.hier.cross.piece, l.hier.block = pieceBytes, pieceBytes, 256<<10
					l.wrap(&countedComm{l.comm, host, &sent[host[r]]})
				}
				g.runScheduled(t, rng, []job{c.job()})
				if most := slices.Max(sent); most > c.limit {
					t.Errorf("a host has sent %d bytes, want at most %d: %v", most, c.limit, sent)
				}
			})
		}
	}

}

func TestHostsMustShareMemory(t *testing.T) {
	n := inproc.NewWorld(3, inproc.Options{Hosts: [][]int{{0, 1}, {2}}})
	l, err := n[0].OpenLane(0, 0, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	l.Shared = nil
	defer func() {
		if recover() == nil {
			t.Error("a host without memory was accepted")
		}
	}()
	NewLane(l, Options{})
}
