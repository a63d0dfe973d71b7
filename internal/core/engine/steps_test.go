package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// program feeds a program's reductions to steps, each a millisecond after the one before.
type program struct {
	steps
	now  moment
	seen map[string]bool
}

func (p *program) reduce(name string, floats int64) {
	p.kind(operation.Allreduce, name, floats)
}

func (p *program) kind(kind operation.Kind, name string, floats int64) {
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.now += moment(time.Millisecond)
	p.reduced(0, &negotiate.Response{Type: kind, Name: name, DType: tensor.Float32, Shape: tensor.Shape{floats}},
		p.seen[name], p.now)
	p.seen[name] = true
}

// lately is how many steps body has, and how long one takes, after a while of it.
func (p *program) lately(body func(step int)) (steps uint64, mean time.Duration) {
	step := 0
	for ; step < 100; step++ {
		body(step)
	}
	before := p.times
	for ; step < 300; step++ {
		body(step)
	}
	steps = p.times.Count() - before.Count()
	return steps, time.Duration((p.times.Sum - before.Sum) / max(1, steps))
}

// TestStepsOfPrograms checks what counts as a step of programs of several kinds.
func TestStepsOfPrograms(t *testing.T) {
	gradients := func(p *program) {
		for i := range int64(10) {
			p.reduce(fmt.Sprint("gradient ", i), 100+i)
		}
	}
	for _, c := range []struct {
		what string
		body func(p *program, step int)
		mean time.Duration // in a program of 200 steps
	}{
		{"gradients", func(p *program, _ int) { gradients(p) }, 10 * time.Millisecond},
		{"a loss for each of 4 batches, and then gradients", func(p *program, _ int) {
			for range 4 {
				p.reduce("loss", 1)
			}
			gradients(p)
		}, 14 * time.Millisecond},
		{"large tensors without a name of their own", func(p *program, step int) {
			gradients(p)
			p.reduce(fmt.Sprint("noname ", step), 1000)
		}, 11 * time.Millisecond},
		{"large tensors of other kinds", func(p *program, _ int) {
			p.kind(operation.Broadcast, "weights", 5000)
			gradients(p)
			p.kind(operation.Allgather, "rows", 5000)
		}, 12 * time.Millisecond},
		{"tensors of one size", func(p *program, _ int) {
			for i := range 7 {
				p.reduce(fmt.Sprint("layer ", i), 50)
			}
		}, 7 * time.Millisecond},
		{"a large tensor in each 40th step", func(p *program, step int) {
			gradients(p)
			if step%40 == 0 {
				p.reduce("average", 9999)
			}
		}, 10*time.Millisecond + 25*time.Microsecond},
	} {
		p := &program{}
		if n, mean := p.lately(func(step int) { c.body(p, step) }); n != 200 || mean != c.mean {
			t.Errorf("%s: %d steps of %v, not 200 of %v", c.what, n, mean, c.mean)
		}
	}
}

// TestAModelThatHasGoneIsNoStep checks that the steps of a smaller model are seen after those of a larger one.
func TestAModelThatHasGoneIsNoStep(t *testing.T) {
	p := &program{}
	p.lately(func(int) {
		for i := range int64(5) {
			p.reduce(fmt.Sprint("large ", i), 1000+i)
		}
	})
	for range 1000 {
		p.reduce("small", 1)
		p.reduce("smaller", 1)
	}
	if n, mean := p.lately(func(int) {
		p.reduce("small", 1)
		p.reduce("smaller", 1)
	}); n != 200 || mean != 2*time.Millisecond {
		t.Errorf("%d steps of %v", n, mean)
	}
}

// TestStepsOfAnEngine checks that all ranks count the steps of a program, over several process sets and a join.
func TestStepsOfAnEngine(t *testing.T) {
	inWorlds(t, []int{2, 3}, func(t *testing.T, engines []*Engine) {
		const steps, pause = 20, 2 * time.Millisecond
		loop := func(r int, e *Engine) {
			for range steps {
				for i := range 3 {
					if err := do(t, e, sum(fmt.Sprint("tensor ", i), make([]byte, 8<<i))); err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
				}
				time.Sleep(pause)
			}
		}
		each(engines, loop)
		for r, e := range engines {
			f := e.Figures()
			if n := f.Steps.Count(); n < steps-4 || n >= steps || f.Steps.Sum < n*uint64(pause) {
				t.Errorf("rank %d: %d steps in %v", r, n, time.Duration(f.Steps.Sum))
			}
		}
		each(engines, func(r int, e *Engine) {
			if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
				Postscale: 1}); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			loop(r, e)
		})
		for r, e := range engines {
			if n := e.Figures().Steps.Count(); n < 2*steps-5 || n >= 2*steps {
				t.Errorf("rank %d: %d steps after a join", r, n)
			}
		}
	})
}
