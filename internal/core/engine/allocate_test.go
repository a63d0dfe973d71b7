//go:build !race

// The race detector has a sync.Pool forget at random.

package engine

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/table"
)

// In steady state a repeated operation allocates nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	e := newWorld(t, 1, true, nil)[0]
	data := floats(1, 2, 3)
	shape := tensor.Shape{3}
	op := Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "x", Shape: shape,
		Prescale: 1, Postscale: 1, In: data, Out: data, WillWait: true}
	step := func() {
		if err := do(t, e, &op); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := e.Counters().Requests.Load(); n > 2 {
		t.Errorf("%d requests in full for one repeated tensor", n)
	}
}

// With the check on, an operation still allocates nothing.
func TestNaNCheckAllocatesNothing(t *testing.T) {
	engines, _ := checking(t, 1, operation.NaNAbort)
	op := sum("s", make([]byte, 1<<20))
	run := func() {
		if err := do(t, engines[0], op); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(50, run); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// In steady state keeping errors costs no allocation: a step as int8 makes none that a step without compression does
// not make. (Messages in one process make some.)
func TestKeepingAllocatesNothing(t *testing.T) {
	engines := newWorld(t, 2, false, nil)
	allocations := func(w tensor.Wire) float64 {
		again, ended := make(chan struct{}), make(chan struct{})
		step := func(r int) func() {
			op := (&trained{}).op(r, "x")
			op.Wire, op.WillWait = w, true
			return func() {
				if err := do(t, engines[r], op); err != nil {
					t.Error(err)
				}
			}
		}
		mine, other := step(0), step(1)
		go func() {
			defer close(ended)
			for range again {
				other()
			}
		}()
		both := func() {
			again <- struct{}{}
			mine()
		}
		for range 20 {
			both()
		}
		n := testing.AllocsPerRun(100, both)
		close(again)
		<-ended
		return n
	}
	if plain, kept := allocations(tensor.WireAsIs), allocations(tensor.WireInt8); kept > plain {
		t.Errorf("%v allocations a step, and %v without compression", kept, plain)
	}
}

// In steady state pulls and pushes of several ranks allocate nothing.
func TestTablesAllocateNothing(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	again, ended := make(chan struct{}), make(chan struct{})
	step := func(r int) func() {
		tb, err := engines[r].NewTable(0, tableOptions("t", 4, table.Adagrad))
		if err != nil {
			t.Error(err)
			return func() {}
		}
		var l table.Lookup
		keys, rows := make([]int64, 500), make([]float32, 2000)
		round := int64(r)
		return func() {
			round++
			for i := range keys {
				keys[i] = int64(i) + 200*(round%2)
			}
			if err := tb.Fill(&l, keys, table.Padding{}); err != nil {
				t.Error(err)
			}
			for _, op := range [2]Op{tb.Pull(&l, rows, false), tb.Push(&l, rows, 0.1)} {
				op.WillWait = true
				if err := do(t, engines[r], &op); err != nil {
					t.Error(err)
				}
			}
		}
	}
	steps := make([]func(), 2)
	each(engines, func(r int, _ *Engine) { steps[r] = step(r) })
	go func() {
		defer close(ended)
		for range again {
			steps[1]()
		}
	}()
	both := func() {
		again <- struct{}{}
		steps[0]()
	}
	for range 20 {
		both()
	}
	// The two Ops of each rank escape to the heap here, in this test.
	if n := testing.AllocsPerRun(100, both); n > 4 {
		t.Errorf("%v allocations", n)
	}
	close(again)
	<-ended
}
