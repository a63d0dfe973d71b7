package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// waits is how many operations of e's callers are pending.
func waits(e *Engine) int {
	n := 0
	for _, w := range e.Waiting() {
		if !w.Refused {
			n++
		}
	}
	return n
}

// rows describes an alltoall of four rows that sends that many to each member.
func rows(name string, splits ...int32) *Op {
	op, _, _ := made(&Op{Type: operation.Alltoall, DType: tensor.Float32, Name: name, Unnamed: name == "",
		Shape: tensor.Shape{4}, Splits: splits, In: floats(1, 2, 3, 4)})
	return op
}

// refusedBy expects err to be rank odd's refusal of an alltoall of a sum of 9 rows, in the words for that rank, or in
// those for the others.
func refusedBy(t *testing.T, odd, r int, err *Error) {
	t.Helper()
	code, want := PreconditionError, fmt.Sprintf("rank %d refuses Alltoall of tensor ", odd)
	if r == odd {
		code, want = InvalidArgument, "Alltoall of tensor "
	}
	if err == nil || err.Code != code || !strings.HasPrefix(err.Reason, want) ||
		!strings.HasSuffix(err.Reason, "the sum of the splits 9 is greater than the first dimension 4.") {
		t.Errorf("rank %d, where rank %d refuses: %v", r, odd, err)
	}
}

// A call that one rank refuses fails on all ranks, with its reason, and the next calls work: with a name that the
// cache knows or not, and without a name.
func TestRefusedOnOneRankFailsOnAll(t *testing.T) {
	inWorlds(t, []int{2, 3}, func(t *testing.T, engines []*Engine) { refuseInTurn(t, engines) })
	refuseInTurn(t, newHosts(t, [][]int{{0, 1}, {2, 3}, {4}}, nil))
}

func refuseInTurn(t *testing.T, engines []*Engine) {
	each(engines, func(r int, e *Engine) {
		for _, name := range []string{"x", ""} {
			for round := range 4 {
				for odd := range engines {
					op := rows(name, make([]int32, len(engines))...)
					if r == odd {
						op.Splits[0] = 9
					}
					refusedBy(t, odd, r, do(t, e, op))
					for range round { // cards are given and taken back
						if err := do(t, e, rows(name, make([]int32, len(engines))...)); err != nil {
							t.Errorf("rank %d, round %d: %v", r, round, err)
						}
					}
				}
			}
		}
	})
}

// Several calls of one name that all ranks have refused may end in one batch: each of them ends once.
func TestRefusedByAll(t *testing.T) {
	inWorlds(t, []int{1, 2}, func(t *testing.T, engines []*Engine) {
		for range 20 {
			each(engines, func(r int, e *Engine) {
				for range 5 {
					op := rows("x", make([]int32, len(engines))...)
					op.Splits[0] = 9
					refusedBy(t, r, r, do(t, e, op))
				}
				if err := do(t, e, rows("x", make([]int32, len(engines))...)); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				if n := len(e.Waiting()); n > 0 {
					t.Errorf("rank %d still has %d calls", r, n)
				}
			})
		}
	})
}

// Calls pair up one to one. Each refused call fails one call of each other rank, however early it came, and the next
// calls of all ranks meet.
func TestRefusedCallsPairUp(t *testing.T) {
	inWorlds(t, []int{2}, func(t *testing.T, engines []*Engine) {
		var later [2]*Entry
		for range 3 {
			refusedBy(t, 0, 0, do(t, engines[0], rows("x", 9, 0)))
		}
		later[0] = enqueue(t, engines[0], rows("x", 1, 3))
		if all := engines[0].Waiting(); len(all) != 1 || all[0].Refused || all[0].Unready {
			t.Errorf("a call after refused ones: %+v", all)
		}
		for range 3 {
			refusedBy(t, 0, 1, do(t, engines[1], rows("x", 1, 3)))
		}
		later[1] = enqueue(t, engines[1], rows("x", 1, 3))
		for r, en := range later {
			if err := finish(t, engines[r], en); err != nil || int(en.ReceivedSplits()[0]) != 1+2*r {
				t.Errorf("rank %d: %v, got %v", r, err, en.ReceivedSplits())
			}
			en.Release()
		}
		for r, e := range engines {
			if all := e.Waiting(); len(all) != 0 {
				t.Errorf("rank %d: %v is left", r, all)
			}
		}
	})
}

// A mistake that all ranks make at different times fails one call of each; the next call works.
func TestRefusedOnAllRanks(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			for round := range 20 {
				for range round % 3 {
					refusedBy(t, r, r, do(t, e, rows("x", 9, 0, 0)))
				}
				if err := do(t, e, rows("x", 1, 2, 1)); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	})
}

// A refused call is recorded as failed, though the others have not made it yet: its rank does not wait.
func TestRefusedIsRecordedAsFailed(t *testing.T) {
	e := newWorld(t, 2, true, func(o *Options) { o.Records = 8 })[0]
	refusedBy(t, 0, 0, do(t, e, rows("x", 9, 0)))
	if all := e.Records(); len(all) != 1 || all[0].Name != "x" || all[0].Phase() != "failed" {
		t.Errorf("records: %+v", all)
	}
}

// A group of which one operation is refused fails as a whole, on all ranks.
func TestRefusedGroup(t *testing.T) {
	for _, name := range []string{"g", ""} {
		inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
			each(engines, func(r int, e *Engine) {
				for round := range 6 {
					ops := []Op{*sum("a", floats(1)), *sum("b", floats(2)), *sum("c", floats(3))}
					if bad := round%2 == 1; bad && r == round%3 {
						ops[1].In = ops[1].In[:2]
						if _, err := e.EnqueueGroup(name, ops); err == nil || err.Code != InvalidArgument {
							t.Errorf("rank %d: %v", r, err)
						}
						continue
					}
					all, err := e.EnqueueGroup(name, ops)
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					for _, en := range all {
						err := finish(t, e, en)
						want := fmt.Sprintf("rank %d refuses Allreduce", round%3)
						refused := err != nil && strings.Contains(err.Reason, want)
						if refused != (round%2 == 1) || err != nil && !refused {
							t.Errorf("rank %d, round %d: %v", r, round, err)
						}
						en.Release()
					}
				}
			})
		})
	}
}

// A refused call that no other rank makes holds up neither a join, nor the end of its process set, nor the shutdown.
// The lane keeps no more of them than mostRefused.
func TestRefusedAlone(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			set, err := e.AddSet([]int{0, 1})
			if err != nil {
				t.Error(err)
				return
			}
			if r == 1 {
				for i := range 2 * mostRefused {
					op := rows(fmt.Sprintf("x%d", i%2), 9, 0)
					op.Set = set
					refusedBy(t, r, r, do(t, e, op))
				}
				if n := e.Pending(); n > mostRefused {
					t.Errorf("%d refused calls are pending", n)
				}
				refusedBy(t, r, r, do(t, e, rows("y", 9, 0, 0)))
				refusedBy(t, r, r, do(t, e, rows("y", 9, 0, 0)))
			}
			if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
				Postscale: 1}); err != nil {
				t.Errorf("rank %d cannot join: %v", r, err)
			}
			if err := do(t, e, sum("after", floats(1))); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if err := e.RemoveSet(set); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if n := e.Pending(); n != 0 {
				t.Errorf("rank %d: %d operations are pending", r, n)
			}
			if r == 2 {
				refusedBy(t, r, r, do(t, e, rows("z", 9, 0, 0)))
			}
		})
	})
}
