package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// unnamed is a sum without a name, in a process set.
func unnamed(set int, data []byte) *Op {
	op := sum("", data)
	op.Unnamed, op.Set = true, set
	return op
}

// unnamedSum adds up ones in a set, and returns how many ranks took part.
func unnamedSum(t *testing.T, e *Engine, set int) float32 {
	data := floats(1)
	if err := do(t, e, unnamed(set, data)); err != nil {
		t.Errorf("rank %d: %v", e.opts.Rank, err)
	}
	return float(data, 0)
}

// unnamedGroup is unnamedSum of two tensors that are submitted together.
func unnamedGroup(t *testing.T, e *Engine) float32 {
	data := [2][]byte{floats(1), floats(1)}
	ops := []Op{*unnamed(0, data[0]), *unnamed(0, data[1])}
	entries, err := e.EnqueueGroup("", ops)
	if err != nil {
		t.Errorf("rank %d: %v", e.opts.Rank, err)
		return 0
	}
	for _, en := range entries {
		if err := finish(t, e, en); err != nil {
			t.Errorf("rank %d: %v", e.opts.Rank, err)
		}
	}
	return float(data[1], 0)
}

// Operations without a name in a process set leave the numbers of other sets alone.
func TestUnnamedInDifferentNumbersOfSets(t *testing.T) {
	each(newWorld(t, 3, true, nil), func(r int, e *Engine) {
		pair, err := e.AddSet([]int{0, 1})
		if err != nil {
			t.Error(err)
			return
		}
		for round := range 3 {
			if r < 2 {
				if n := unnamedSum(t, e, pair); n != 2 {
					t.Errorf("rank %d, round %d: %v in the pair", r, round, n)
				}
			}
			if n := unnamedSum(t, e, 0); n != 3 {
				t.Errorf("rank %d, round %d: %v in the world", r, round, n)
			}
		}
	})
}

// After a join all ranks count from 1, however many operations each of them has done before.
func TestUnnamedAfterUnevenJoin(t *testing.T) {
	for _, hosts := range [][][]int{{{0, 1, 2}}, {{0, 1}, {2}}} {
		each(newHosts(t, hosts, nil), func(r int, e *Engine) {
			for round := range 4 {
				for range (r + round) % 3 {
					unnamedSum(t, e, 0)
					unnamedGroup(t, e)
				}
				if err := do(t, e, &Op{Type: operation.Join, Name: JoinName, Prescale: 1, Postscale: 1}); err != nil {
					t.Errorf("rank %d: join: %v", r, err)
				}
				if n := unnamedSum(t, e, 0); n != 3 {
					t.Errorf("rank %d, round %d: %v after the join", r, round, n)
				}
				if n := unnamedGroup(t, e); n != 3 {
					t.Errorf("rank %d, round %d: %v in a group after the join", r, round, n)
				}
			}
		})
	}
}

// An operation that is refused for its arguments takes a number, as on the ranks where it has no error. An operation
// whose name is taken takes none. Each kind counts by itself, and the names of pending operations show the numbers.
func TestNumbersOfUnnamed(t *testing.T) {
	e := newWorld(t, 2, true, nil)[0]
	submit := func(op *Op) {
		t.Helper()
		if _, err := e.Enqueue(op); err != nil {
			t.Error(err)
		}
	}
	submit(unnamed(0, floats(1)))
	bad := unnamed(0, floats(1))
	bad.Out = nil
	if _, err := e.Enqueue(bad); err == nil ||
		err.Reason != `Allreduce of tensor "allreduce.noname": 0 bytes of output, but the result has 4.` {
		t.Error(err)
	}
	submit(sum("allreduce.noname.3", floats(1)))
	if _, err := e.Enqueue(unnamed(0, floats(1))); err == nil || err.Code != InvalidArgument {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := e.EnqueueGroup("", []Op{*unnamed(0, floats(1)), *unnamed(0, floats(1))}); err != nil {
		t.Error(err)
	}
	gather := unnamed(0, floats(1))
	gather.Type, gather.Out = operation.Allgather, nil
	submit(gather)
	var names []string
	for _, w := range e.Waiting() {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	want := []string{"allgather.noname.1", "allreduce.noname.1", "allreduce.noname.2", "allreduce.noname.3",
		"grouped_allreduce.noname.1_1of2", "grouped_allreduce.noname.1_2of2"}
	if !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}

// Threads of one rank never use a number twice.
func TestUnnamedOfManyThreads(t *testing.T) {
	e := newWorld(t, 2, true, nil)[0]
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			for range 50 {
				if _, err := e.Enqueue(unnamed(0, floats(1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	threads.Wait()
	if n := len(e.Waiting()); n != 200 {
		t.Errorf("%d operations", n)
	}
}
