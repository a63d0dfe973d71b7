package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestFigures checks what each rank counts of a few collectives, and that the rank which waits says so.
func TestFigures(t *testing.T) {
	inWorlds(t, []int{2, 3}, func(t *testing.T, engines []*Engine) {
		const rounds, late = 10, 50 * time.Millisecond
		each(engines, func(r int, e *Engine) {
			for i := range rounds {
				if r == 1 && (i == 0 || i == 5) { // before the names have cards, and after
					time.Sleep(late)
				}
				for _, n := range []int{4, 8 << 10} {
					en, err := e.Enqueue(sum(fmt.Sprint("tensor ", n), make([]byte, n)))
					if err != nil || !en.Wait(limit) || en.Err() != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					en.Release()
				}
			}
		})
		for r, e := range engines {
			f := e.Figures()
			if len(f.Works) != 2 || len(f.Tensors) != 1 || f.Tensors[0] != (feed.Tensors{Op: operation.Allreduce,
				DType: tensor.Float32, Count: 2 * rounds}) {
				t.Errorf("rank %d: works %+v, tensors %+v", r, f.Works, f.Tensors)
				continue
			}
			small, large := &f.Works[0], &f.Works[1]
			if small.Class != feed.ClassOf(4) || small.Bytes != 4*rounds || small.Times.Count() != rounds ||
				large.Class != feed.ClassOf(8<<10) || large.Bytes != rounds*8<<10 || large.Times.Count() != rounds {
				t.Errorf("rank %d: %+v, %+v", r, small, large)
			}
			if n := f.Negotiation.Count(); n != 2*rounds || f.Pending != 0 || f.Requests+f.Marks < 2*rounds {
				t.Errorf("rank %d: %d negotiations, %d pending, %d requests and %d marks", r, n, f.Pending,
					f.Requests, f.Marks)
			}
			if f.Fusion.Batches != 2*rounds || f.Fusion.Bytes != small.Bytes+large.Bytes ||
				f.Fusion.Threshold != 1<<20 {
				t.Errorf("rank %d: %+v", r, f.Fusion)
			}
			// The others wait for at least as long as rank 1 sleeps, minus the moments before it slept.
			charged := map[int]time.Duration{}
			for _, l := range f.WaitedFor {
				charged[l.Rank] += time.Duration(l.Nanoseconds)
			}
			if r != 1 && charged[1] < late*3/2 || charged[r] != 0 ||
				charged[0]+charged[1]+charged[2] > time.Duration(f.Waited) {
				t.Errorf("rank %d has waited for %v, and charges %v", r, time.Duration(f.Waited), charged)
			}
			if waited := time.Duration(f.Waited); r != 1 && waited < late/2 || uint64(waited) > f.Negotiation.Sum {
				t.Errorf("rank %d has waited for %v, and negotiated for %v", r, waited,
					time.Duration(f.Negotiation.Sum))
			}
		}
	})
}

// TestFiguresWhilePending checks the gauges while one rank is missing.
func TestFiguresWhilePending(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	en, err := engines[0].Enqueue(sum("tensor", make([]byte, 4)))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	f := engines[0].Figures()
	if f.Pending != 1 || f.Oldest < uint64(20*time.Millisecond) || f.Negotiation.Count() != 0 {
		t.Errorf("%d operations pending, for %v; %d negotiated", f.Pending, time.Duration(f.Oldest),
			f.Negotiation.Count())
	}
	waited, oldest := time.Duration(f.Waited), time.Duration(f.Oldest)
	if waited < 20*time.Millisecond || waited > oldest+time.Millisecond {
		t.Errorf("the rank has waited for %v, and still does", waited)
	}
	if len(f.Waits) != 1 || f.Waits[0].Name != "tensor" || f.Waits[0].Op != "ALLREDUCE" || f.Waits[0].Age != f.Oldest ||
		f.Waits[0].Phase != feed.Waiting {
		t.Errorf("%+v", f.Waits)
	}
	other, err := engines[1].Enqueue(sum("tensor", make([]byte, 4)))
	if err != nil || !other.Wait(limit) || !en.Wait(limit) {
		t.Fatal(err)
	}
	en.Release()
	other.Release()
}

// TestAJoinIsNoWait checks that a rank without more data waits for nobody, neither while the others go on nor later.
func TestAJoinIsNoWait(t *testing.T) {
	const late = 100 * time.Millisecond
	inWorlds(t, []int{2, 4}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			if r == len(engines)-1 {
				time.Sleep(late)
				for i, e := range engines[:r] {
					if f := e.Figures(); f.Waited > 0 {
						t.Errorf("rank %d has waited for %v in its join", i, time.Duration(f.Waited))
					}
				}
			}
			if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
				Postscale: 1}); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		for r, e := range engines {
			if f := e.Figures(); len(f.WaitedFor) > 0 || f.Waited > 0 {
				t.Errorf("rank %d has waited for %v, and charges %+v", r, time.Duration(f.Waited), f.WaitedFor)
			}
		}
	})
}
