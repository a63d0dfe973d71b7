package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// reduceForms are costs of a message with which the tree or the chain is chosen over Comm.
var reduceForms = map[string]int{"chosen": messageBytes, "tree": 1 << 30, "chain": 1}

// reduceJob checks against the naive allreduce, bit for bit. If the algorithm decides the order, the floats are exact
// in any order.
func reduceJob(rng *rand.Rand, form string, size, root int, dt tensor.DType, op tensor.ReduceOp, n int,
	exact bool) job {
	scale := 1.0
	if dt != tensor.Bool && rng.IntN(2) == 0 {
		scale = 0.5
	}
	ins, sources := make([][]byte, size), make([][]byte, size)
	for r := range ins {
		ins[r] = elements(rng, dt, n, exact)
		sources[r] = bytes.Clone(ins[r])
	}
	inPlace := rng.IntN(2) == 0
	out := newGuarded(make([]byte, len(ins[root])))
	if inPlace {
		out = newGuarded(ins[root])
		sources[root] = out.data()
	}
	want := naiveAllreduce(dt, op, ins, scale)
	return job{
		name: fmt.Sprintf("reduce %s to %d of %d %v, %v, scale %v, in place %v, %d members", form, root, n, dt, op,
			scale, inPlace, size),
		start: func(l *Lane) Op {
			before := l.message
			l.message = reduceForms[form]
			defer func() { l.message = before }()
			if l.rank == root {
				return l.Reduce(root, dt, op, sources[root], out.data(), scale)
			}
			return l.Reduce(root, dt, op, sources[l.rank], nil, scale)
		},
		check: func(r int) error {
			if (r != root || !inPlace) && !bytes.Equal(sources[r], ins[r]) {
				return fmt.Errorf("rank %d: the input has changed", r)
			}
			if r != root {
				return nil
			}
			return out.expect(r, want)
		},
	}
}

func TestReduceMatchesTheReference(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		var jobs []job
		for form := range reduceForms {
			for dt := range tensor.DType(tensor.NumReducible) {
				turn := rng.IntN(3)
				for i, op := range opsOf(dt) {
					for j, bytes := range []int{0, 8, 64 * size, 3*testPiece + 8, testChunk, 5*testChunk + 8} {
						if (turn+i+j)%3 == 0 { // each operation runs with two of the lengths
							jobs = append(jobs, reduceJob(rng, form, size, rng.IntN(size), dt, op, bytes/dt.Size(),
								!o.Shared))
						}
					}
				}
			}
			for root := range size {
				jobs = append(jobs, reduceJob(rng, form, size, root, tensor.Float32, tensor.Sum, 3*testChunk,
					!o.Shared))
			}
		}
		newGroup(t, size, o).runScheduled(t, rng, jobs)
	})
}

// TestDeterministicReduce compares a reduce with the allreduce of the same floats, whose sum depends on the order.
func TestDeterministicReduce(t *testing.T) {
	for name, o := range map[string]inproc.Options{
		"messages":         {},
		"shared memory":    {Shared: true},
		"equal hosts":      {Hosts: topologies[0]},
		"hosts of one too": {Hosts: topologies[3]},
	} {
		t.Run(name, func(t *testing.T) {
			size := max(sizeOf(o.Hosts), 4)
			rng := random(t)
			g := newGroup(t, size, o, Options{Deterministic: true})
			for _, n := range []int{1, 100, 5000} {
				compareWithAllreduce(t, g, rng, tensor.Float32, n)
				compareWithAllreduce(t, g, rng, tensor.BFloat16, n)
			}
		})
	}
}

// compareWithAllreduce reduces the same elements to one rank and to all.
func compareWithAllreduce(t *testing.T, g *group, rng *rand.Rand, dt tensor.DType, n int) {
	size := len(g.lanes)
	ins, sums := make([][]byte, size), make([][]byte, size)
	for r := range ins {
		ins[r] = elements(rng, dt, n, false)
		sums[r] = make([]byte, len(ins[r]))
	}
	got, root := make([]byte, len(ins[0])), rng.IntN(size)
	unchecked := func(int) error { return nil }
	g.runScheduled(t, rng, []job{
		{name: "allreduce", check: unchecked, start: func(l *Lane) Op {
			return l.Allreduce(dt, tensor.Sum, ins[l.rank], sums[l.rank], 1)
		}},
		{name: "reduce", check: unchecked, start: func(l *Lane) Op {
			if l.rank == root {
				return l.Reduce(root, dt, tensor.Sum, ins[root], got, 1)
			}
			return l.Reduce(root, dt, tensor.Sum, ins[l.rank], nil, 1)
		}},
	})
	if !bytes.Equal(got, sums[root]) {
		t.Errorf("%d %v: the reduction has other bits than the allreduce", n, dt)
	}

}
