package world

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// After a rank has left, all others name it, in whichever process set they were. They leave in turn, but are not the
// cause.
func TestOneCauseAcrossSets(t *testing.T) {
	asProcesses(t)
	const ranks, leaves = 4, 1
	for _, transport := range []string{"shm", "tcp", "on aabb"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel() // each waits for news of a death, which does not come
			l := newLauncher(t, ranks)
			o := quiet()
			o.Sets = [][]int{{0, 1}, {2, 3}}
			var mu sync.Mutex
			told := map[string][]int{}
			each(ranks, func(r int) {
				w, err := join(context.Background(), l.config(r, ranks, transport), 1, o)
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					return
				}
				defer w.Leave(limit)
				for step := 0; ; step++ {
					if r == leaves && step == 3 {
						return
					}
					failure := inSet(w, 1+r/2)
					if failure == nil {
						_, failure = add(w, "in all", 1)
					}
					if failure != nil {
						mu.Lock()
						told[failure.Reason] = append(told[failure.Reason], r)
						mu.Unlock()
						if w.Failure() != failure.Reason {
							t.Errorf("rank %d: its failure is %q", r, w.Failure())
						}
						return
					}
				}
			})
			for text, by := range told {
				if len(by) != ranks-1 || !strings.Contains(text, "The first to leave: rank 1 ") ||
					!strings.Contains(text, `: ALLREDUCE "in all" `) && !strings.Contains(text, `: BARRIER "barrier.noname`) {
					t.Errorf("told to %v: %q", by, text)
				}
			}
		})
	}
}

// inSet is a barrier of a process set.
func inSet(w *World, set int) *engine.Error {
	op := plainOp(operation.Barrier, 0)
	op.Name, op.Set = "barrier.noname", set
	en, err := w.Engine.Enqueue(op)
	if err != nil {
		return err
	}
	defer en.Release()
	en.Wait(limit)
	return en.Err()
}
