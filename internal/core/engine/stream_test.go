package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/driving"
)

// of puts an operation into a stream.
func of(stream int64, op *Op) *Op {
	op.Stream = stream
	return op
}

// TestStreamsKeepTheOrder: operations of a stream on the same memory have the results of a sequential run, whichever of
// them the program waits for first. That holds also if only one rank has the same memory for them.
func TestStreamsKeepTheOrder(t *testing.T) {
	for _, shared := range []bool{true, false} {
		engines := newWorld(t, 2, shared, nil)
		each(engines, func(r int, e *Engine) {
			for round := range 4 { // the later ones by the cache, in one order or another
				x, all := floats(float32(r+1), 0), make([]byte, 16)
				ops := []*Op{of(7, sum("a", x)), of(7, sum("b", x)), of(7, gatherOp("gather", x, all)),
					of(7, broadcastOp("c", 1, all)), of(7, sum("d", all[4:12]))}
				if round == 3 {
					ops[0].Name, ops[1].Name = "b", "new"
				}
				var entries []*Entry
				for _, op := range ops {
					entries = append(entries, enqueue(t, e, op))
				}
				if r == 0 {
					time.Sleep(time.Millisecond)
				}
				for i := range entries {
					if round%2 == 0 {
						i = len(entries) - 1 - i
					}
					if err := finish(t, e, entries[i]); err != nil {
						t.Errorf("round %d rank %d: %v", round, r, err)
					}
				}
				for _, en := range entries {
					en.Release()
				}
				got := []float32{float(x, 0), float(all, 0), float(all, 1), float(all, 2), float(all, 3)}
				if want := []float32{6, 6, 0, 12, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("round %d rank %d: %v, want %v", round, r, got, want)
				}
			}
		})
	}
}

// TestStreamsOfGroups: a group of a stream waits as a whole, and the next operation of the stream waits for the whole
// group. A tensor that is twice in one group is refused all the same.
func TestStreamsOfGroups(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		for range 3 {
			x, y := floats(1), floats(2)
			first := enqueue(t, e, of(1, sum("x", x)))
			group, failure := e.EnqueueGroup("g", []Op{*of(1, sum("g.x", x)), *of(1, sum("g.y", y)),
				*of(1, sum("g.z", y))})
			if failure != nil {
				t.Error(failure)
				return
			}
			last := enqueue(t, e, of(1, broadcastOp("y", 0, y)))
			for i, en := range append([]*Entry{first, last}, group...) {
				err := finish(t, e, en)
				if twice := i == 4; twice != (err != nil) || twice && !strings.Contains(err.Reason,
					"of the same group") {
					t.Errorf("rank %d: operation %d: %v", r, i, err)
				}
				en.Release()
			}
			if float(x, 0) != 4 || float(y, 0) != 4 {
				t.Errorf("rank %d: %v, %v", r, float(x, 0), float(y, 0))
			}
		}
	})
}

// TestStreamsOfTwoNumbers: an operation does not wait for one of another stream, or of none.
func TestStreamsOfTwoNumbers(t *testing.T) {
	for _, second := range []int64{0, 2} {
		playShared(t, func(a, _ []byte) *Op { return of(1, sum("x", a)) },
			func(a, _ []byte) *Op { return of(second, sum("y", a)) }, true, "writes, too")
	}
}

// TestFailureOfWhatIsFollowed: if an operation fails, the operation that follows it fails on all ranks, says why, and
// leaves nothing behind.
func TestFailureOfWhatIsFollowed(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		x, y := make([]byte, 8), make([]byte, 8)
		if r == 1 {
			x = make([]byte, 12)
		}
		second := x[:8]
		if r == 1 {
			second = y // this rank need not wait
		}
		var entries []*Entry
		for _, op := range []*Op{of(1, sum("x", x)), of(1, sum("second", second)),
			of(1, broadcastOp("third", 0, second))} {
			entries = append(entries, enqueue(t, e, op))
		}
		for i, en := range entries {
			err := finish(t, e, en)
			if err == nil || !strings.Contains(err.Reason, "Mismatched ALLREDUCE tensor shapes") {
				t.Errorf("rank %d, operation %d: %v", r, i, err)
			}
			en.Release()
		}
		for _, op := range []*Op{sum("second", second), broadcastOp("third", 0, second)} {
			if err := do(t, e, op); err != nil {
				t.Errorf("again, rank %d: %v", r, err)
			}
		}
	})
	for _, e := range engines {
		if m := &e.inUse; !m.read.empty() || !m.written.empty() || e.world.following.Load() != 0 ||
			e.world.behind.Load() != 0 {
			t.Error("something is left")
		}
	}
}

// TestEndOfWhatFollows: an abort ends operations that have not begun.
func TestEndOfWhatFollows(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	x := floats(1)
	first, second := enqueue(t, engines[0], of(1, sum("x", x))), enqueue(t, engines[0], of(1, sum("y", x)))
	if f := engines[0].facts(); f != (driving.Facts{}) {
		t.Errorf("the driver looks after what follows: %+v", f)
	}
	engines[1].Abort(fmt.Errorf("enough"))
	for _, en := range []*Entry{second, first} {
		if err := finish(t, engines[0], en); err == nil || !strings.Contains(err.Reason, "enough") {
			t.Errorf("%v", err)
		}
		en.Release()
	}
}

// TestAJoinComesAfterWhatFollows: a rank announces all its earlier operations before it joins.
func TestAJoinComesAfterWhatFollows(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		x := floats(1)
		var entries []*Entry
		for i := range 3 {
			entries = append(entries, enqueue(t, e, of(1, with(tensor.Sum, fmt.Sprint(i), x))))
		}
		entries = append(entries, enqueue(t, e, &Op{Type: operation.Join, Name: JoinName, Prescale: 1, Postscale: 1}))
		for _, en := range entries {
			if err := finish(t, e, en); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			en.Release()
		}
		if float(x, 0) != 8 {
			t.Errorf("rank %d: %v", r, float(x, 0))
		}
	})
}
