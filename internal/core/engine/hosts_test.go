package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// newHosts is newWorld on simulated hosts, between which data travels with marks, as in jobs.
func newHosts(t testing.TB, hosts [][]int, change func(*Options)) []*Engine {
	t.Helper()
	return newHostsWith(t, hosts, 4096, change)
}

// newHostsWith is newHosts with a value for inproc.Options.Early.
func newHostsWith(t testing.TB, hosts [][]int, early int, change func(*Options)) []*Engine {
	t.Helper()
	engines := makeHosts(t, hosts, early, change)
	t.Cleanup(func() { each(engines, func(r int, e *Engine) { e.Shutdown(limit) }) })
	return engines
}

// makeHosts is makeWorld on simulated hosts.
func makeHosts(t interface{ Fatal(...any) }, hosts [][]int, early int, change func(*Options)) []*Engine {
	o := Options{FusionThreshold: 1 << 20, CacheCapacity: 64, EarlyBytes: early}
	for _, ranks := range hosts {
		o.Size += len(ranks)
	}
	if change != nil {
		change(&o)
	}
	engines := make([]*Engine, o.Size)
	for r, n := range inproc.NewWorld(o.Size, inproc.Options{Hosts: hosts, Cards: max(1, o.CacheCapacity),
		ChunkBytes: 4096, Early: early,
		Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }}) {
		o := o
		o.Rank = r
		e, err := New(n, o)
		if err != nil {
			t.Fatal(err)
		}
		engines[r] = e
	}
	return engines
}

// A rank that leaves ends the operations of others, although the leaders of its host and of theirs have nothing
// pending: these leaders compute, and nobody waits on them.
func TestLeavingPastIdleLeaders(t *testing.T) {
	hosts := [][]int{{0, 1}, {2, 3}}
	for h := range 8 {
		hosts = append(hosts, []int{4 + 2*h, 5 + 2*h}) // the last host is below the second one
	}
	for _, leaves := range []int{1, 3, 5, 19} {
		engines := newHosts(t, hosts, nil)
		each(engines, func(r int, e *Engine) {
			if err := do(t, e, sum("all", floats(1))); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		each(engines, func(r int, e *Engine) {
			switch {
			case r == leaves:
				e.Shutdown(limit)
			case r%2 == 1:
				err := do(t, e, sum("more", floats(1)))
				if want := fmt.Sprintf("rank %d has shut down", leaves); err == nil ||
					!strings.Contains(err.Reason, want) {
					t.Errorf("rank %d: %v, want %q", r, err, want)
				}
			}
		})
	}
}

// With GOROVOD_DETERMINISTIC all sums have one order, so the bits do not depend on the fusion.
func TestDeterministicWhateverIsFused(t *testing.T) {
	const tensors = 12
	hosts := [][]int{{0, 1, 3}, {2, 4}, {5}}
	rng := rand.New(rand.NewPCG(1, 2))
	inputs := make([][][]byte, 6)
	for r := range inputs {
		for i := range tensors {
			v := make([]float32, 1+i*i*23)
			for k := range v {
				v[k] = float32(rng.NormFloat64() * float64(int(1)<<rng.IntN(20))) // their sums depend on their order
			}
			inputs[r] = append(inputs[r], floats(v...))
		}
	}
	run := func(threshold int64) []byte {
		engines := newHosts(t, hosts, func(o *Options) {
			o.FusionThreshold = threshold
			o.Collective = collective.Options{Deterministic: true}
		})
		results := make([][]byte, len(engines))
		each(engines, func(r int, e *Engine) {
			var ops []Op
			for i, in := range inputs[r] {
				ops = append(ops, *sum(fmt.Sprint("t", i), bytes.Clone(in)))
			}
			entries, err := e.EnqueueGroup("all", ops)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			for i, en := range entries {
				if err := finish(t, e, en); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				results[r] = append(results[r], ops[i].Out...)
			}
		})
		for r := range results {
			if !bytes.Equal(results[r], results[0]) {
				t.Errorf("threshold %d: rank %d has other bits than rank 0", threshold, r)
			}
		}
		return results[0]
	}
	want := run(0)
	for _, threshold := range []int64{1 << 10, 10_000, 1 << 20} {
		if !bytes.Equal(run(threshold), want) {
			t.Errorf("threshold %d: other bits than without fusion", threshold)
		}
	}
}
