package carrier

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

func TestByNCCL(t *testing.T) {
	for _, c := range []struct {
		kind                operation.Kind
		dtype               tensor.DType
		op                  tensor.ReduceOp
		prescale, postscale float64
		float8, want        bool
	}{
		{operation.Allreduce, tensor.Float32, tensor.Sum, 1, 1, false, true},
		{operation.Allreduce, tensor.Float32, tensor.Sum, 0.3, 2, false, true},
		{operation.Allreduce, tensor.Float64, tensor.Sum, 0.1, 0.3, false, true},
		{operation.Allreduce, tensor.Float16, tensor.Sum, 0.25, 1, false, true},
		{operation.Allreduce, tensor.Float16, tensor.Sum, 0.1, 1, false, false}, // the type lacks the factor
		{operation.Allreduce, tensor.BFloat16, tensor.Sum, 1, 0.1, false, false},
		{operation.Allreduce, tensor.BFloat16, tensor.Sum, 1, 1.0 / 3, false, true}, // the average
		{operation.Allreduce, tensor.Float16, tensor.Sum, 1 / 0.7, 0.7 / 3, false, false},
		{operation.Allreduce, tensor.Float16, tensor.Sum, 1 / 1.1, 1.1 / 3, false, true}, // the average, rounded
		{operation.Allreduce, tensor.Float16, tensor.Sum, 0.25, 4, false, false},         // the sum would be large
		{operation.Allreduce, tensor.Float16, tensor.Sum, 4, 0.25, false, false},
		{operation.Allreduce, tensor.BFloat16, tensor.Sum, 0.25, 4, false, true},
		{operation.Allreduce, tensor.Float16, tensor.Sum, 1e-9, 1, false, false},
		{operation.Allreduce, tensor.Float16, tensor.Sum, 1e9, 1, false, false},
		{operation.Allreduce, tensor.Int32, tensor.Sum, 1, 1, false, true},
		{operation.Allreduce, tensor.Int32, tensor.Sum, 0.5, 2, false, false}, // each truncates
		{operation.Allreduce, tensor.Uint8, tensor.Sum, 1, 1.0 / 3, false, false},
		{operation.Allreduce, tensor.Float32, tensor.Product, 2, 0.5, false, false},
		{operation.Reduce, tensor.Float32, tensor.Min, -1, -1, false, false},
		{operation.Reducescatter, tensor.Float64, tensor.Max, 1, 1, false, true},
		{operation.Allreduce, tensor.Int16, tensor.Sum, 1, 1, false, false},
		{operation.Allreduce, tensor.Bool, tensor.Sum, 1, 1, false, false},
		{operation.Allreduce, tensor.Int32, tensor.BitOr, 1, 1, false, false},
		{operation.Adasum, tensor.Float32, tensor.Adasum, 1, 1, false, false},
		{operation.Allgather, tensor.Bool, 0, 1, 1, false, true},
		{operation.Alltoall, tensor.Float8E5M2, 0, 1, 1, false, true},
		{operation.Allreduce, tensor.Float8E5M2, tensor.Sum, 1, 1, false, false},
		{operation.Allreduce, tensor.Float8E5M2, tensor.Sum, 1, 1, true, true},
		{operation.Allreduce, tensor.Float8E5M2, tensor.Sum, 0.25, 1, true, true},
		{operation.Allreduce, tensor.Float8E5M2, tensor.Sum, 0.3, 1, true, false},
		{operation.Allreduce, tensor.Float8E5M2, tensor.Sum, 1, 1.0 / 3, true, false},
	} {
		if got := byNCCL(c.kind, c.dtype, c.op, c.prescale, c.postscale, 3, c.float8); got != c.want {
			t.Errorf("%v of %v, %v, %v and %v, float8 %v: %v", c.kind, c.dtype, c.op, c.prescale, c.postscale, c.float8,
				got)
		}
	}
	for factor, want := range map[float64]bool{1: true, 0.5: false} {
		if got := byNCCL(operation.Allreduce, tensor.Float8E5M2, tensor.Sum, factor, 1, 1, true); got != want {
			t.Errorf("float8_e5m2 of one rank times %v: %v", factor, got)
		}
	}
}

// Whether NCCL can do an operation is asked for each batch, so that costs no allocation.
func TestByNCCLAllocatesNothing(t *testing.T) {
	for dtype := range elements {
		for _, op := range []tensor.ReduceOp{tensor.Sum, tensor.Max} {
			ask := func() { byNCCL(operation.Allreduce, dtype, op, 1, 1./3, 3, true) }
			if n := testing.AllocsPerRun(10, ask); n > 0 {
				t.Errorf("%v %v: %v allocations", dtype, op, n)
			}
		}
	}
}

// The trial's sums are what its numbers add up to, and exact in float32 in any order, also in large jobs.
func TestTrialNumbers(t *testing.T) {
	for _, members := range []int{1, 2, 3, 15, 16, 17, 33, 4096} {
		for _, i := range []int{0, 1, 255, 256, 257, trialNumbers - 1} {
			sum := 0
			for m := range members {
				sum += trialNumber(m, i)
			}
			if want := trialSum(members, i); sum != want || want >= 1<<24 {
				t.Errorf("element %d of %d members: %d, not %d", i, members, sum, want)
			}
		}
	}
}
