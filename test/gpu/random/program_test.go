//go:build cgo && linux

package main

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// TestDraw counts what is drawn: all kinds, all types and reduce operations, factors, groups, joins, barriers, uneven
// parts.
func TestDraw(t *testing.T) {
	sizes := []int{4, 2, 2, 2, 1}
	seen := make(map[string]int)
	for i := 0; i < 2000; {
		all := draw(i, 2000, sizes)
		i += len(all)
		seen[fmt.Sprint(len(all), " at a time")]++
		for _, p := range all {
			for what, is := range map[string]bool{"grouped": p.grouped, "barrier": p.barrier, "joined": p.joined > 0,
				"alike": p.alike, "joined, alike": p.joined > 0 && p.alike} {
				if is {
					seen[what]++
				}
			}
			seen[fmt.Sprint("set ", p.set)]++
			for k := range p.ops {
				note(seen, &p, &p.ops[k])
			}
		}
	}
	var want []string
	for _, k := range append(kinds, operation.Allreduce) {
		want = append(want, k.Describe().Name)
	}
	for dt := range tensor.DType(tensor.NumDTypes) {
		want = append(want, "Allreduce of "+dt.String(), "Alltoall of "+dt.String())
	}
	for op := range tensor.ReduceOp(tensor.NumReduceOps) {
		want = append(want, op.String())
	}
	want = append(want, "alike", "joined, alike", "grouped Allreduce", "grouped Allgather", "grouped Reducescatter",
		"joined", "joined Reduce", "barrier", "prescale", "postscale", "prescale and postscale", "in place",
		"allocates", "1 at a time", "3 at a time", "uneven Allgather", "uneven Alltoall", "Allreduce of nothing",
		"set 0", "set 4")
	for _, what := range want {
		if seen[what] < 5 {
			t.Errorf("%s is drawn %d times", what, seen[what])
		}
		t.Logf("%6d %s", seen[what], what)
	}
}

// note counts the properties of an operation.
func note(seen map[string]int, p *program, o *op) {
	name := o.kind.Describe().Name
	seen[name]++
	seen[name+" of "+o.dtype.String()]++
	for what, is := range map[string]bool{
		o.reduce.String():        o.reduces() || o.kind == operation.Adasum,
		"grouped " + name:        p.grouped,
		"joined " + name:         p.joined > 0,
		"prescale":               o.prescale != 1,
		"postscale":              o.postscale != 1,
		"prescale and postscale": o.prescale != 1 && o.postscale != 1,
		"in place":               o.inPlace(),
		"allocates":              o.allocates && !o.likeInput(),
		"uneven " + name:         len(o.counts) > 1 && o.counts[0][0] != o.counts[1][0],
		name + " of nothing":     o.rows(0) == 0,
	} {
		if is {
			seen[what]++
		}
	}
}
