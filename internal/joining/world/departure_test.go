package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
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

// After KeepSets, ranks leave one after the other. The rest go on in their process sets, in new ones, and with
// messages. What has to do with a rank that has left fails in its name. The failure of a process still ends everything.
func TestGroupsGoOnAfterDepartures(t *testing.T) {
	asProcesses(t)
	for _, transport := range []string{"shm", "tcp", "on aabb", "on abba", "tls on abcd"} {
		for _, order := range [][]int{{3, 0}, {0, 2}} {
			t.Run(fmt.Sprintf("%s %v", transport, order), func(t *testing.T) {
				t.Parallel()
				leaveInOrder(t, newLauncher(t, 4), transport, order)
			})
		}
	}
}

func leaveInOrder(t *testing.T, l *launcher, transport string, order []int) {
	here := []int{0, 1, 2, 3}
	pairs := [][]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}
	ws := make([]*World, len(here))
	rest := func(f func(w *World, r int)) { each(len(here), func(i int) { f(ws[here[i]], here[i]) }) }
	rest(func(_ *World, r int) {
		o := quiet()
		o.Sets = pairs
		w, err := join(context.Background(), l.config(r, len(ws), transport), 1, o)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		w.Engine.KeepSets()
		ws[r] = w
	})
	if t.Failed() {
		return
	}
	defer func() { rest(func(w *World, _ int) { w.Leave(limit) }) }()
	for _, leaves := range order {
		here = slices.DeleteFunc(here, func(r int) bool { return r == leaves })
		ws[leaves].Leave(limit)
		l.Died(rendezvous.Death{Rank: leaves, Host: "testhost"})
		rest(func(w *World, _ int) { checkRest(t, w, here, order[0], pairs) })
	}
	l.Died(rendezvous.Death{Rank: here[1], Host: "testhost", ExitCode: 3})
	pair := 1 + slices.IndexFunc(pairs, func(p []int) bool { return slices.Equal(p, here) })
	rest(func(w *World, r int) {
		err := inSet(w, pair)
		for err == nil { // the news has not come yet
			err = inSet(w, pair)
		}
		want := fmt.Sprintf("rank %d on host testhost exited with code 3", here[1])
		if !strings.HasPrefix(err.Reason, want) {
			t.Errorf("rank %d: %v", r, err)
		}
	})
}

// checkRest checks all that w can do after some ranks have left, of which first was the first. The others are here.
func checkRest(t *testing.T, w *World, here []int, first int, pairs [][]int) {
	r := w.Place.Rank
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for i, pair := range pairs {
		if !slices.Contains(pair, r) {
			continue
		}
		other := pair[0] + pair[1] - r
		var failed error
		if err := inSet(w, 1+i); err != nil {
			failed = err
		}
		sent := w.Send(ctx, other, talkTag, 0, []byte("x"))
		_, _, received := w.Recv(ctx, other, talkTag, make([]byte, 1))
		for what, err := range map[string]error{"barrier": failed, "send": sent, "receive": received} {
			if slices.Contains(here, other) {
				if err != nil {
					t.Errorf("rank %d, %s with rank %d: %v", r, what, other, err)
				}
			} else if what == "send" && err == nil {
				continue // the sockets have taken it
			} else if told := strings.TrimSuffix(engine.LeftText(fmt.Sprintf("rank %d", other)), "."); err == nil ||
				!strings.Contains(err.Error(), told) {
				t.Errorf("rank %d, %s with rank %d, which has left: %v", r, what, other, err)
			}
		}
	}
	told := fmt.Sprintf("The first to leave: rank %d ", first)
	if _, err := add(w, "in all", 1); err == nil || !strings.Contains(err.Reason, told) {
		t.Errorf("rank %d, in all: %v", r, err)
	}
	if len(here) == 2 {
		return // that set is there
	}
	id, err := w.Engine.AddSetOfTheRest(here)
	if err != nil {
		t.Errorf("rank %d, new set: %v", r, err)
		return
	}
	if err := inSet(w, id); err != nil {
		t.Errorf("rank %d, in the new set: %v", r, err)
	}
}
