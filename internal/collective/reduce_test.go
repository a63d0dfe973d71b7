package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport/inproc"
)

// reduceForms are what a message is said to cost, so that over Comm the tree is chosen, or the chain.
var reduceForms = map[string]int{"chosen": messageBytes, "tree": 1 << 30, "chain": 1}

// reduceJob checks against the naive allreduce, bit for bit. The floats are exact where the order is the algorithm's.
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
			for dt := range tensor.DType(tensor.NumDTypes) {
				turn := rng.IntN(3)
				for i, op := range ops {
					for j, bytes := range []int{0, 8, 64 * size, 3*testPiece + 8, testChunk, 5*testChunk + 8} {
						if (turn+i+j)%3 == 0 { // each operation meets two of the lengths, and each length some
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

// TestDeterministicReduce compares with the allreduce of the same floats, whose sum depends on the order.
func TestDeterministicReduce(t *testing.T) {
	for _, o := range []inproc.Options{{}, {Shared: true}, {Hosts: topologies[0]}, {Hosts: topologies[3]}} {
		size := sizeOf(o.Hosts)
		if size == 0 {
			size = 4
		}
		rng := random(t)
		g := newGroup(t, size, o, Options{Deterministic: true})
		for _, n := range []int{1, 100, 5000} {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
				ins, sums := make([][]byte, size), make([][]byte, size)
				for r := range ins {
					ins[r] = elements(rng, dt, n, false)
					sums[r] = make([]byte, len(ins[r]))
				}
				got, root := make([]byte, len(ins[0])), rng.IntN(size)
				g.runScheduled(t, rng, []job{
					{name: "allreduce", start: func(l *Lane) Op {
						return l.Allreduce(dt, tensor.Sum, ins[l.rank], sums[l.rank], 1)
					},
						check: func(int) error { return nil }},
					{name: "reduce", start: func(l *Lane) Op {
						if l.rank == root {
							return l.Reduce(root, dt, tensor.Sum, ins[root], got, 1)
						}
						return l.Reduce(root, dt, tensor.Sum, ins[l.rank], nil, 1)
					}, check: func(int) error { return nil }},
				})
				if !bytes.Equal(got, sums[root]) {
					t.Errorf("%+v: %d %v: the reduction has other bits than the allreduce", o, n, dt)
				}
			}
		}
	}
}
