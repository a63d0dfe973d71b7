//go:build cgo && linux

package main

import (
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// counted are the functions whose calls packed prints. The engine makes these calls. Only a cuEventRecord for each
// tensor comes from the submission.
var counted = []string{"ncclAllReduce", "ncclGroupStart", "cuMemcpyDtoDAsync_v2", "cuStreamWaitEvent", "cuEventRecord"}

// packed sums tensors that travel together, twice. Rank 0 prints the calls of the second time.
func (r *rank) packed(tensors int) error {
	p := program{grouped: true}
	for i := range tensors {
		o := op{kind: operation.Allreduce, dtype: tensor.Float32, reduce: tensor.Sum, prescale: 1, postscale: 1,
			width: 1, place: true, values: uint64(i)}
		for range r.sets[0].ranks {
			o.counts = append(o.counts, []int{10})
		}
		p.ops = append(p.ops, o)
	}
	before := make([]int, len(counted))
	for range 2 {
		for i, f := range counted {
			before[i] = calls(f)
		}
		if err := r.burst([]program{p}); err != nil {
			return err
		}
		if err := r.compare(0); err != nil {
			return err
		}
	}
	if r.sets[0].rank() > 0 {
		return nil
	}
	var said []string
	for i, f := range counted {
		said = append(said, fmt.Sprint(f, " ", calls(f)-before[i]))
	}
	fmt.Printf("%d tensors: %s\n", tensors, strings.Join(said, ", "))
	return nil
}
