package engine

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// fine is a value that no 16-bit float holds, so its sum tells whether it has travelled as one.
const fine = 1 + 0x1p-12

func TestCompression(t *testing.T) {
	for _, c := range []struct {
		name    string
		shared  bool
		setting tensor.Wire
		op      func(op *Op)
		rounded bool
	}{
		{"not asked for", false, tensor.WireAsIs, func(*Op) {}, false},
		{"by the operation", false, tensor.WireAsIs, func(op *Op) { op.Wire = tensor.WireFloat16 }, true},
		{"by the setting", false, tensor.WireBFloat16, func(*Op) {}, true},
		{"of an average", false, tensor.WireBFloat16, func(op *Op) { op.ReduceOp = tensor.Average; op.Postscale = 3 },
			true},
		{"not of a maximum", false, tensor.WireBFloat16, func(op *Op) { op.ReduceOp = tensor.Max; op.Postscale = 3 },
			false},
		{"not inside a host", true, tensor.WireFloat16, func(*Op) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines := newWorld(t, 3, c.shared, func(o *Options) { o.Wire = c.setting })
			each(engines, func(r int, e *Engine) {
				for range 3 { // the later ones by the cache
					op := sum("x", floats(fine, fine))
					c.op(op)
					if err := do(t, e, op); err != nil {
						t.Errorf("rank %d: %v", r, err)
						continue
					}
					if x := float(op.Out, 1); (x != 3*fine) != c.rounded || x < 2.9 || x > 3.1 {
						t.Errorf("rank %d: the sum is %v, rounded %v", r, x, c.rounded)
					}
				}
			})
		})
	}
}

// Tensors that are compressed differently do not travel together.
func TestCompressedTensorsFuseWithTheirLike(t *testing.T) {
	engines := newWorld(t, 2, false, nil)
	each(engines, func(r int, e *Engine) {
		ops := make([]Op, 2*tensor.NumWires)
		for i := range ops {
			ops[i] = *sum(string(rune('a'+i)), floats(fine))
			ops[i].Wire = tensor.Wire(i % tensor.NumWires)
		}
		entries, err := e.EnqueueGroup("g", ops)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		for i, en := range entries {
			if err := finish(t, e, en); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			// A tensor as small as this one does not travel in a form that keeps errors.
			unchanged := ops[i].Wire == tensor.WireAsIs || ops[i].Wire.Keeps()
			if x := float(ops[i].Out, 0); (x == 2*fine) != unchanged {
				t.Errorf("rank %d: the sum as %v is %v", r, ops[i].Wire, x)
			}
		}
	})
}

func TestCompressionMustAgree(t *testing.T) {
	engines := newWorld(t, 2, false, nil)
	each(engines, func(r int, e *Engine) {
		op := sum("x", floats(1))
		op.Wire = tensor.Wire(r + 1)
		err := do(t, e, op)
		if err == nil || err.Code != PreconditionError || !strings.Contains(err.Reason,
			"Mismatched compression: One rank sent compression fp16, but another rank sent compression bf16. (rank "+
				"0: fp16; rank 1: bf16)") {
			t.Errorf("rank %d: %v", r, err)
		}
		op = sum("y", floats(1))
		op.Wire = []tensor.Wire{tensor.WireInt8, tensor.WireFloat16}[r]
		if err := do(t, e, op); err == nil || err.Code != PreconditionError || !strings.Contains(err.Reason,
			"Mismatched compression: One rank sent compression int8, but another rank sent compression fp16.") {
			t.Errorf("rank %d: %v", r, err)
		}
		// Compressions that have no effect need not agree.
		op = &Op{Type: operation.Allreduce, DType: tensor.Int32, ReduceOp: tensor.Sum, Name: "i",
			Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: []byte{1, 0, 0, 0}, Out: make([]byte, 4),
			Wire: tensor.Wire(r + 1)}
		if err := do(t, e, op); err != nil || op.Out[0] != 2 {
			t.Errorf("rank %d: %v, sum %v", r, err, op.Out)
		}
		op = sum("w", floats(1))
		op.Wire = tensor.NumWires
		if err := do(t, e, op); err == nil || err.Code != InvalidArgument {
			t.Errorf("rank %d: an unknown form: %v", r, err)
		}
	})
}
