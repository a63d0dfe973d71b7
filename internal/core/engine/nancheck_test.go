package engine

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/output"
)

var (
	aNaN = float32(math.NaN())
	inf  = float32(math.Inf(1))
)

// checking makes a world whose ranks check for NaNs, and returns what they log.
func checking(t *testing.T, size int, how operation.NaNCheck) ([]*Engine, *output.Buffer) {
	logged := new(output.Buffer)
	return newWorld(t, size, true, func(o *Options) {
		o.NaNCheck = how
		o.Log = slog.New(slog.NewTextHandler(logged, nil))
	}), logged
}

// reductionOf is an operation on float32 that combines data.
func reductionOf(kind string, data []byte) *Op {
	op := &Op{Type: operation.Allreduce, ReduceOp: tensor.Sum, DType: tensor.Float32, Name: kind, Prescale: 1,
		Postscale: 1,
		Shape:     tensor.Shape{int64(len(data) / 4)}, In: data, Out: make([]byte, len(data))}
	switch kind {
	case "reducescatter":
		op.Type = operation.Reducescatter
		op.Out, op.Alloc = nil, func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
	case "reduce":
		op.Type, op.ReduceOp = operation.Reduce, tensor.Product
	case "adasum":
		op.Type, op.ReduceOp = operation.Adasum, tensor.Adasum
	case "allgather":
		op.Type, op.AddsUp = operation.Allgather, true
		op.Out, op.Alloc = nil, func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
	case "maximum":
		op.ReduceOp = tensor.Max
	}
	return op
}

// The error names the rank, the tensor and the place, for each reduction that spreads a NaN, and for no other.
func TestNaNIsNamed(t *testing.T) {
	for _, c := range []struct {
		op    string
		value float32
		words string
	}{
		{"allreduce", aNaN, "a NaN to allreduce"},
		{"allreduce", inf, "an infinity to allreduce"},
		{"allreduce", math.MaxFloat32, ""},
		{"reducescatter", aNaN, "a NaN to reducescatter"},
		{"reduce", -inf, "an infinity to reduce"},
		{"adasum", aNaN, "a NaN to adasum"},
		{"maximum", aNaN, "a NaN to allreduce"},
		{"maximum", -inf, ""},
		{"allgather", aNaN, "a NaN to allgather"},
		{"allgather", inf, "an infinity to allgather"},
	} {
		t.Run(fmt.Sprintf("%s of %v", c.op, c.value), func(t *testing.T) {
			engines, logged := checking(t, 2, operation.NaNWarn)
			each(engines, func(r int, e *Engine) {
				for range 3 {
					data := floats(1, 2, 3, 4, 5, 6, 7, 8)
					if r == 1 {
						copy(data[5*4:], floats(c.value))
					}
					if err := do(t, e, reductionOf(c.op, data)); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
			counted := engines[1].Counters().NaNs.Load()
			if c.words == "" {
				if logged.String() != "" || counted != 0 {
					t.Errorf("%d counted, logged:\n%s", counted, logged)
				}
				return
			}
			want := "rank 1 contributes " + c.words + ` \"` + c.op + `\": at index 5 of 8 (float32)`
			if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
				t.Errorf("logged:\n%s\nexpected one line with %s", text, want)
			}
			if counted != 3 || engines[0].Counters().NaNs.Load() != 0 {
				t.Errorf("rank 1 counts %d tensors, rank 0 %d", counted, engines[0].Counters().NaNs.Load())
			}
		})
	}
}

// Among the ranks is one that has joined. The tensors fuse, and some are longer than what a check reads at a time.
func TestNaNsAmongFusedTensors(t *testing.T) {
	engines, logged := checking(t, 3, operation.NaNWarn)
	each(engines, func(r int, e *Engine) {
		if r == 2 {
			if err := do(t, e, &Op{Type: operation.Join}); err != nil {
				t.Error(err)
			}
			return
		}
		for i := range nanReports + 4 {
			data := make([]byte, 4*i)
			if i == 5 {
				data = make([]byte, nanCheckBytes+4)
			}
			if r == 0 && i > 0 {
				copy(data[len(data)-4:], floats(aNaN))
			}
			if err := do(t, e, sum(fmt.Sprint("t", i), data)); err != nil {
				t.Error(err)
			}
		}
		if err := do(t, e, &Op{Type: operation.Join}); err != nil {
			t.Error(err)
		}
	})
	text := logged.String()
	if strings.Count(text, "\n") != nanReports || strings.Count(text, "rank 0 contributes a NaN") != nanReports ||
		!strings.Contains(text, "names no more tensors") {
		t.Errorf("logged:\n%s", text)
	}
	if n := engines[0].Counters().NaNs.Load(); n != nanReports+3 {
		t.Errorf("%d tensors counted", n)
	}
}

// No rank has the result, and all ranks report the same cause.
func TestNaNEndsTheJob(t *testing.T) {
	for _, bytes := range []int{4, 3*nanCheckBytes + 4} {
		for _, kind := range []string{"allreduce", "reducescatter", "reduce", "adasum", "allgather"} {
			if bytes > 4 && kind != "allreduce" && kind != "allgather" {
				continue
			}
			t.Run(fmt.Sprintf("%s of %d bytes", kind, bytes), func(t *testing.T) {
				engines, logged := checking(t, 3, operation.NaNAbort)
				each(engines, func(r int, e *Engine) {
					if err := do(t, e, reductionOf(kind, make([]byte, bytes))); err != nil {
						t.Errorf("rank %d, all zero: %v", r, err)
					}
					data := make([]byte, bytes)
					if r == 1 {
						copy(data[bytes-4:], floats(aNaN))
					}
					err := do(t, e, reductionOf(kind, data))
					if err == nil && kind == "reduce" && r == 2 { // it has no result, and its part may have ended
						err = do(t, e, reductionOf("adasum", data))
					}
					want := "rank 1 contributes a NaN to " + kind
					if err == nil || !strings.Contains(err.Reason, want) {
						t.Errorf("rank %d: %v, expected %s", r, err, want)
					}
				})
				if n := strings.Count(logged.String(), "rank 1 contributes a NaN to "+kind); n != 1 {
					t.Errorf("logged %d times: %s", n, logged)
				}
			})
		}
	}
}
