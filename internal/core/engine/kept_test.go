package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// keptElements are enough elements to be quantised.
const keptElements = 5000

// trained is a tensor that a program reduces as int8 again and again, with the same contributions. The errors of such
// sums do not even out by chance.
type trained struct {
	name string
	n    int
	sums []float64 // of the results
}

func (s *trained) contribution(rank, i int) float32 {
	return float32(math.Sin(float64(1+i*(rank+1)))) * float32(1+i%7)
}

func (s *trained) op(rank int, name string) *Op {
	if s.n == 0 {
		s.n = keptElements
	}
	data := make([]float32, s.n)
	for i := range data {
		data[i] = s.contribution(rank, i)
	}
	op := sum(name, floats(data...))
	op.Wire = tensor.WireInt8
	return op
}

func (s *trained) add(op *Op) {
	if s.sums == nil {
		s.sums = make([]float64, s.n)
	}
	for i := range s.sums {
		s.sums[i] += float64(float(op.Out, i))
	}
}

// off is the greatest error of the sums of that many steps.
func (s *trained) off(size, steps int) (most float64) {
	for i := range s.sums {
		want := 0.0
		for r := range size {
			want += float64(s.contribution(r, i)) * float64(steps)
		}
		most = max(most, math.Abs(s.sums[i]-want))
	}
	return most
}

// oneStep bounds the error of one step among three ranks: the steps of the operands, up to 7, are at most 1/8, and
// those of the sum at most 1/4. The first step's error is not kept, and the last step's error has not been sent yet.
const oneStep = (3*1./8 + 1./4) / 2

// train takes that many steps with these tensors: in an order of its own on each rank, several tensors at the same
// time.
func train(t *testing.T, e *Engine, steps int, tensors []*trained) {
	rank := e.opts.Rank
	for step := range steps {
		ops := make([]*Op, len(tensors))
		entries := make([]*Entry, len(tensors))
		for k := range tensors {
			at := (k + rank + step) % len(tensors)
			ops[at] = tensors[at].op(rank, tensors[at].name)
			en, err := e.Enqueue(ops[at])
			if err != nil {
				t.Error(err)
				return
			}
			entries[at] = en
		}
		for k, en := range entries {
			if err := finish(t, e, en); err != nil {
				t.Error(err)
			}
			en.Release()
			tensors[k].add(ops[k])
		}
	}
}

func tensors(names ...string) []*trained {
	var all []*trained
	for _, name := range names {
		all = append(all, &trained{name: name, n: keptElements + 100*len(all)})
	}
	return all
}

// Alone or fused, in any order, the sums over many steps stay within the error of a step of the exact sums. Without
// kept errors, under names that do not come again, the sums drift away.
func TestErrorsAreKeptByName(t *testing.T) {
	const steps = 60
	for _, threshold := range []int64{0, 1 << 20} {
		t.Run(fmt.Sprint("fusion threshold ", threshold), func(t *testing.T) {
			engines := newWorld(t, 3, false, func(o *Options) { o.FusionThreshold = threshold })
			each(engines, func(r int, e *Engine) {
				mine := tensors("a", "b", "c")
				train(t, e, steps, mine)
				for _, s := range mine {
					if off := s.off(3, steps); off > 2*oneStep {
						t.Errorf("rank %d: after %d steps %q is off by %v; one step's error is at most %v", r, steps,
							s.name, off, oneStep)
					}
				}
				if got, want := e.KeptBytes(), int64(4*(3*keptElements+300)); got != want {
					t.Errorf("rank %d keeps %d bytes, want %d", r, got, want)
				}
				once := &trained{}
				for step := range steps {
					op := once.op(r, fmt.Sprint("step ", step))
					if err := do(t, e, op); err != nil {
						t.Error(err)
					}
					once.add(op)
				}
				if off := once.off(3, steps); off < 4*oneStep {
					t.Errorf("rank %d: with a new name each step the sums are off by %v only: the test proves nothing",
						r, off)
				}
			})
		})
	}
}

// Kept errors live as long as the card.
func TestKeptErrorsGoWithTheCard(t *testing.T) {
	const one = 4 * keptElements
	step := func(t *testing.T, e *Engine, set int, s *trained, times int) {
		for range times {
			op := s.op(e.opts.Rank, s.name)
			op.Set = set
			if err := do(t, e, op); err != nil {
				t.Error(err)
			}
			s.sums = nil
			s.add(op)
			if off := s.off(2, 1); off > 4*oneStep {
				t.Errorf("%q is off by %v", s.name, off)
			}
		}
	}
	keeps := func(t *testing.T, e *Engine, want int64) {
		t.Helper()
		if got := e.KeptBytes(); got != want {
			t.Errorf("rank %d keeps %d bytes, want %d", e.opts.Rank, got, want)
		}
	}
	// changed reduces "x" that many times with a change, after which the rank keeps that much.
	changed := func(t *testing.T, e *Engine, times int, want int64, change func(op *Op)) {
		t.Helper()
		for range times {
			op := (&trained{}).op(e.opts.Rank, "x")
			change(op)
			if err := do(t, e, op); err != nil {
				t.Error(err)
			}
		}
		keeps(t, e, want)
	}
	for name, c := range map[string]func(t *testing.T, e *Engine){
		"a name that is used once keeps nothing": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 1)
			keeps(t, e, 0)
			step(t, e, 0, &trained{name: "x"}, 1)
			keeps(t, e, one)
		},
		"eviction": func(t *testing.T, e *Engine) { // the cache has two cards
			step(t, e, 0, &trained{name: "x"}, 3)
			step(t, e, 0, &trained{name: "y"}, 3)
			keeps(t, e, 2*one)
			small := &trained{name: "z", n: 4200}
			step(t, e, 0, small, 3)
			keeps(t, e, one+4*4200)
			step(t, e, 0, &trained{name: "x"}, 3)
			step(t, e, 0, &trained{name: "y"}, 3)
			keeps(t, e, 2*one)
		},
		"another shape": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			step(t, e, 0, &trained{name: "x", n: 6000}, 1)
			keeps(t, e, 0)
			step(t, e, 0, &trained{name: "x", n: 6000}, 2)
			keeps(t, e, 4*6000)
		},
		"another compression": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			if err := do(t, e, sum("x", floats(make([]float32, keptElements)...))); err != nil {
				t.Error(err)
			}
			keeps(t, e, 0)
		},
		"another type": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			changed(t, e, 1, 0, func(op *Op) { op.DType, op.Shape = tensor.Float64, tensor.Shape{keptElements / 2} })
		},
		"another prescale": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			changed(t, e, 1, 0, func(op *Op) { op.Prescale = 2 })
			changed(t, e, 2, one, func(op *Op) { op.Prescale = 2 })
		},
		"another postscale": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			changed(t, e, 1, 0, func(op *Op) { op.Postscale = 0.5 })
			changed(t, e, 2, one, func(op *Op) { op.Postscale = 0.5 })
			changed(t, e, 1, 0, func(op *Op) { op.Postscale = 0.25 })
		},
		"an average": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			changed(t, e, 1, 0, func(op *Op) { op.ReduceOp = tensor.Average })
			changed(t, e, 2, one, func(op *Op) { op.ReduceOp = tensor.Average })
		},
		"another reduce operation": func(t *testing.T, e *Engine) {
			step(t, e, 0, &trained{name: "x"}, 3)
			changed(t, e, 1, 0, func(op *Op) { op.ReduceOp = tensor.Max })
		},
		"a join": func(t *testing.T, e *Engine) {
			x := &trained{name: "x"}
			step(t, e, 0, x, 3)
			if e.opts.Rank == 1 { // rank 0 has one more step, with zeros from rank 1
				op := x.op(1, "x")
				if err := do(t, e, op); err != nil {
					t.Error(err)
				}
				for i := range keptElements {
					if d := float(op.Out, i) - x.contribution(1, i); d > 1 || d < -1 {
						t.Errorf("element %d of a sum with a rank that has joined is off by %v", i, d)
						break
					}
				}
				keeps(t, e, 0)
			}
			if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
				Postscale: 1}); err != nil {
				t.Error(err)
			}
			step(t, e, 0, x, 3)
			keeps(t, e, one)
		},
	} {
		t.Run(name, func(t *testing.T) {
			engines := newWorld(t, 2, false, func(o *Options) {
				if o.CacheCapacity = 64; name == "eviction" {
					o.CacheCapacity = 2
				}
			})
			each(engines, func(r int, e *Engine) { c(t, e) })
		})
	}
}

// Kept errors end with the engine, by an abort or a shutdown. The engine of the next world, which an elastic reset
// makes of other ranks, begins from nothing under the same names.
func TestKeptErrorsGoWithTheEngine(t *testing.T) {
	const one = 4 * keptElements
	for how, end := range map[string]func(engines []*Engine){
		"abort": func(engines []*Engine) {
			time.AfterFunc(10*time.Millisecond, func() { engines[2].Abort(errors.New("a rank is gone")) })
			each(engines, func(r int, e *Engine) {
				if err := do(t, e, sum(fmt.Sprint("of rank ", r, " only"), floats(1))); err == nil {
					t.Errorf("rank %d: no error", r)
				}
			})
		},
		"shutdown": func(engines []*Engine) {
			each(engines, func(_ int, e *Engine) { e.Shutdown(limit) })
		},
	} {
		t.Run(how, func(t *testing.T) {
			engines := newWorld(t, 3, false, nil)
			each(engines, func(r int, e *Engine) { train(t, e, 3, []*trained{{name: "x"}}) })
			for r, e := range engines {
				if got := e.KeptBytes(); got != one {
					t.Errorf("rank %d keeps %d bytes, want %d", r, got, one)
				}
			}
			end(engines)
			for r, e := range engines {
				if got := e.KeptBytes(); got != 0 {
					t.Errorf("rank %d keeps %d bytes after the end", r, got)
				}
			}
			next := newWorld(t, 2, false, nil)
			each(next, func(r int, e *Engine) {
				for step, want := range []int64{0, one} {
					x := &trained{name: "x"}
					train(t, e, 1, []*trained{x})
					if off := x.off(2, 1); off > oneStep {
						t.Errorf("rank %d: step %d of the next world is off by %v; one step's error is at most %v", r,
							step, off, oneStep)
					}
					if got := e.KeptBytes(); got != want {
						t.Errorf("rank %d keeps %d bytes after step %d of the next world, want %d", r, got, step,
							want)
					}
				}
			})
		})
	}
}

// A process set keeps errors of its own, which go when it is removed.
func TestKeptErrorsGoWithTheProcessSet(t *testing.T) {
	const one = 4 * keptElements
	engines := newWorld(t, 3, false, nil)
	each(engines, func(r int, e *Engine) {
		x := &trained{name: "x"}
		train(t, e, 3, []*trained{x})
		set, err := e.AddSet([]int{0, 2})
		if err != nil {
			t.Error(err)
			return
		}
		want := int64(one)
		if r != 1 {
			want = 2 * one
			for range 3 {
				op := x.op(r, "x")
				op.Set = set
				if err := do(t, e, op); err != nil {
					t.Error(err)
				}
			}
		}
		if got := e.KeptBytes(); got != want {
			t.Errorf("rank %d keeps %d bytes, want %d", r, got, want)
		}
		if err := e.RemoveSet(set); err != nil {
			t.Error(err)
		}
		if got := e.KeptBytes(); got != one {
			t.Errorf("rank %d keeps %d bytes after the set's end, want %d", r, got, one)
		}
	})
}

// A compression that cannot keep its errors is refused, with the name of the knob that prevents it.
func TestKeepingIsRefusedWhereItCannotBe(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"GOROVOD_DETERMINISTIC=1":  func(o *Options) { o.Collective.Deterministic = true },
		"HOROVOD_CACHE_CAPACITY=0": func(o *Options) { o.CacheCapacity = 0 },
	} {
		for _, shared := range []bool{false, true} {
			engines := newWorld(t, 2, shared, change)
			each(engines, func(r int, e *Engine) {
				op := (&trained{}).op(r, "x")
				if err := do(t, e, op); err == nil || err.Code != InvalidArgument ||
					!strings.Contains(err.Reason, want) || !strings.Contains(err.Reason, "compression int8") {
					t.Errorf("rank %d: %v, want %s", r, err, want)
				}
				// A compression without an effect is not refused.
				op = &Op{Type: operation.Allreduce, DType: tensor.Int32, ReduceOp: tensor.Sum, Name: "i",
					Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: []byte{1, 0, 0, 0}, Out: make([]byte, 4),
					Wire: tensor.WireInt8}
				if err := do(t, e, op); err != nil || op.Out[0] != 2 {
					t.Errorf("rank %d: %v, sum %v", r, err, op.Out)
				}
			})
		}
	}
}
