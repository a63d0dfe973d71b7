//go:build !race

// Under the race detector a sync.Pool drops objects at random.

package hvd_test

import (
	"context"
	"testing"

	"github.com/gorovod/gorovod/hvd"
)

// steps are repeated operations that must allocate nothing.
func steps() map[string]func() error {
	ctx, data := context.Background(), make([]float32, 3)
	handle := new(hvd.Handle)
	sum := []hvd.Option{hvd.WithOp(hvd.Sum)}
	kept := []hvd.Option{hvd.WithOp(hvd.Sum), hvd.WithHandle(handle)}
	return map[string]func() error{
		"blocking":                       func() error { return hvd.Allreduce(ctx, "x", data, sum...) },
		"blocking, option by option":     func() error { return hvd.Allreduce(ctx, "x", data, hvd.WithOp(hvd.Sum)) },
		"broadcast":                      func() error { return hvd.Broadcast(ctx, "b", data, 0) },
		"reduce":                         func() error { return hvd.Reduce(ctx, "r", data, 0) },
		"barrier":                        func() error { return hvd.Barrier(ctx) },
		"asynchronous, in a kept handle": func() error { return wait(hvd.AllreduceAsync("x", data, kept...)) },
		"broadcast, in a kept handle":    func() error { return wait(hvd.BroadcastAsync("b", data, 0, kept[1])) },
	}
}

// In steady state a repeated operation allocates nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	alone(t)
	for name, step := range steps() {
		f := func() {
			if err := step(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for range 5 { // the first calls submit whole requests
			f()
		}
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAllocations(b *testing.B) {
	alone(b)
	for name, step := range steps() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := step(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A group allocates a few pieces of memory, whatever the number of its tensors.
func TestAGroupAllocatesOnce(t *testing.T) {
	alone(t)
	sum := []hvd.Option{hvd.WithOp(hvd.Sum)}
	data := make([][]float32, 300)
	for i := range data {
		data[i] = []float32{1}
	}
	f := func() {
		if err := hvd.GroupedAllreduce(context.Background(), "group", data, sum...); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 { // the first calls submit whole requests
		f()
	}
	if n := testing.AllocsPerRun(100, f); n > 8 {
		t.Errorf("%v allocations for %d tensors", n, len(data))
	}
}

// A repeated Pull and Push of as many keys allocate nothing, once their memory has grown.
func TestTablesAllocateNothing(t *testing.T) {
	alone(t)
	ctx := context.Background()
	table, err := hvd.NewTable(hvd.TableOptions{Name: "t", Dim: 4, Optimizer: hvd.Adam(0.1)})
	if err != nil {
		t.Fatal(err)
	}
	keys, rows := make([]int64, 1000), make([]float32, 4000)
	step := int64(0)
	f := func() {
		step++
		for i := range keys {
			keys[i] = int64(i) * (1 + step%3)
		}
		if err := table.Pull(ctx, keys, rows); err != nil {
			t.Fatal(err)
		}
		if err := table.Push(ctx, keys, rows); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 {
		f()
	}
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
