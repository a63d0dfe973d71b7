package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A rank that leaves is the cause on every rank and in every set. The ranks that it makes leave close their logs in
// turn, but are not the cause.
func TestTheFirstToLeaveIsTheCauseInAllSets(t *testing.T) {
	const leaves = 1
	worlds := map[string]func() []*Engine{
		"shared": func() []*Engine { return newWorld(t, 4, true, nil) },
		"hosts":  func() []*Engine { return newHosts(t, [][]int{{0, 1}, {2, 3}}, nil) },
	}
	for name, make := range worlds {
		for range 10 {
			engines := make()
			each(engines, func(r int, e *Engine) { leaveAmongSets(t, name, e, leaves) })
		}
	}
}

// leaveAmongSets is a rank's program: it makes two pairs. One rank of each waits for the other when a rank leaves.
func leaveAmongSets(t *testing.T, name string, e *Engine, leaves int) {
	r := e.opts.Rank
	pairs := [2]int{}
	for i, members := range [][]int{{0, 1}, {2, 3}} {
		id, err := e.AddSet(members)
		if err != nil {
			t.Error(err)
		}
		pairs[i] = id
	}
	if r == leaves {
		e.Shutdown(limit)
		return
	}
	op := sum("never", floats(1))
	if r%2 == 0 {
		op.Set = pairs[r/2]
	}
	err := do(t, e, op)
	e.Shutdown(limit) // like a program that gives up
	want := LeftText(fmt.Sprintf("rank %d has shut down", leaves)) + " ["
	if view := fmt.Sprintf("seen by rank %d: ALLREDUCE %q w", r, "never"); err == nil ||
		!strings.HasPrefix(err.Reason, want) || !strings.Contains(err.Reason, view) {
		t.Errorf("%s: rank %d is told %v", name, r, err)
	}
}

// Options.Left is called once for the operations of all sets. If nothing is pending, it is called only for the first
// operation that is submitted later.
func TestLeftIsAskedWhenTheWordsAreNeeded(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	engines := newWorld(t, 2, true, func(o *Options) {
		o.Left = func(rank int, view string) string {
			mu.Lock()
			defer mu.Unlock()
			asked[fmt.Sprint("rank ", rank)]++
			if !strings.HasSuffix(view, `seen by rank 0: ALLREDUCE "y" was submitted]`) {
				t.Errorf("the view is %q", view)
			}
			return "the words for all"
		}
	})
	each(engines, func(_ int, e *Engine) {
		if err := do(t, e, sum("x", floats(1))); err != nil {
			t.Error(err)
		}
	})
	engines[1].Shutdown(limit)
	e := engines[0]
	for e.world.departure.Load() == nil { // the background goroutine is woken for this
		e.Wake()
	}
	if len(asked) > 0 || e.Failure() != nil {
		t.Errorf("asked %v although no operation was pending; failure %v", asked, e.Failure())
	}
	for range 2 {
		if err := do(t, e, sum("y", floats(1))); err == nil || !strings.Contains(err.Reason, "the words for all") {
			t.Error(err)
		}
	}
	if asked["rank 1"] != 1 || len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
	if f := e.Failure(); f == nil || f.Reason != "the words for all" {
		t.Errorf("failure %v", f)
	}
}

// After KeepSets, a rank that leaves ends the world and its own sets, in its own name. The other sets go on, and new
// ones are added, until a second rank leaves, and a third.
func TestKeptSetsOutliveDepartures(t *testing.T) {
	worlds := map[string]func(t *testing.T) []*Engine{
		"shared":       func(t *testing.T) []*Engine { return newWorld(t, 4, true, nil) },
		"messages":     func(t *testing.T) []*Engine { return newWorld(t, 4, false, nil) },
		"two hosts":    func(t *testing.T) []*Engine { return newHosts(t, [][]int{{0, 1}, {2, 3}}, nil) },
		"crossed":      func(t *testing.T) []*Engine { return newHosts(t, [][]int{{0, 3}, {1, 2}}, nil) },
		"a host each":  func(t *testing.T) []*Engine { return newHosts(t, [][]int{{0}, {1}, {2}, {3}}, nil) },
		"one far away": func(t *testing.T) []*Engine { return newHosts(t, [][]int{{0, 1, 2}, {3}}, nil) },
	}
	orders := [][]int{{3, 2, 1}, {0, 1, 2}, {1, 3, 0}, {2, 0, 3}}
	for name, make := range worlds {
		for _, order := range orders {
			t.Run(fmt.Sprintf("%s %v", name, order), func(t *testing.T) {
				leaveOneByOne(t, make(t), order)
			})
		}
	}
}

func leaveOneByOne(t *testing.T, engines []*Engine, order []int) {
	sets := [][]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}
	each(engines, func(_ int, e *Engine) {
		e.KeepSets()
		addAll(t, e, sets)
	})
	here := map[int]bool{0: true, 1: true, 2: true, 3: true}
	for _, leaves := range order {
		rest := func(f func(e *Engine)) {
			each(engines, func(r int, e *Engine) {
				if here[r] && r != leaves {
					f(e)
				}
			})
		}
		pending := make([]*Entry, len(engines))
		rest(func(e *Engine) {
			op := sum("with the one who leaves", floats(1))
			op.Set = setOf(e, e.opts.Rank, leaves)
			en, err := e.Enqueue(op)
			if err != nil {
				t.Error(err)
				return
			}
			pending[e.opts.Rank] = en
		})
		engines[leaves].Shutdown(limit)
		rest(func(e *Engine) {
			r := e.opts.Rank
			e.Wait(pending[r], limit)
			wantLeft(t, e, leaves, pending[r].Err())
			pending[r].Release()
		})
		here[leaves] = false
		rest(func(e *Engine) {
			r := e.opts.Rank
			for other := range engines {
				if other == r {
					continue
				}
				op := sum("pair", floats(1))
				op.Set = setOf(e, r, other)
				switch err := do(t, e, op); {
				case !here[other]:
					wantLeft(t, e, other, err)
				case err != nil || float(op.Out, 0) != 2:
					t.Errorf("rank %d with rank %d: %v", r, other, err)
				}
				if e.Shares(other) != here[other] {
					t.Errorf("rank %d shares a set with rank %d: %v", r, other, !here[other])
				}
			}
			wantLeft(t, e, order[0], do(t, e, sum("world", floats(1))))
			_, err := e.AddSet(nil)
			wantLeft(t, e, order[0], err)
			wantLeft(t, e, order[0], e.RemoveSet(1))
			if _, err := e.AddSetOfTheRest([]int{r, order[0]}); err == nil {
				t.Errorf("rank %d has made a set with rank %d, which has left", r, order[0])
			}
			if e.Failure() != nil {
				t.Errorf("rank %d: failure %v", r, e.Failure())
			}
			var new []int
			for r := range engines {
				if here[r] {
					new = append(new, r)
				}
			}
			if len(new) == 2 {
				return // that set is there
			}
			want := len(e.Sets())
			if id, err := e.AddSetOfTheRest(new); err != nil || id != want {
				t.Errorf("rank %d: set %d, want %d, %v", r, id, want, err)
			}
			op := sum("new", floats(1))
			op.Set = want
			if err := do(t, e, op); err != nil || float(op.Out, 0) != float32(len(new)) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
}

func addAll(t *testing.T, e *Engine, sets [][]int) {
	for _, members := range sets {
		if _, err := e.AddSet(members); err != nil {
			t.Error(err)
		}
	}
}

// setOf is the id of the process set of two ranks.
func setOf(e *Engine, a, b int) int {
	for _, s := range e.Sets() {
		if slices.Equal(s.Ranks, []int{min(a, b), max(a, b)}) {
			return s.ID
		}
	}
	panic("no such set")
}

func wantLeft(t *testing.T, e *Engine, leaver int, err error) {
	t.Helper()
	if want := LeftText(fmt.Sprintf("rank %d has shut down", leaver)); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("rank %d: %v; want %s", e.opts.Rank, err, want)
	}
}

// While the words for an operation are found, which take their time, the rank works for other sets. Shutdown waits for
// the words.
func TestTheWordsForADepartureHoldNoOtherSet(t *testing.T) {
	asked, found := make(chan int), make(chan struct{})
	engines := newWorld(t, 3, true, func(o *Options) {
		o.Left = func(rank int, view string) string {
			asked <- rank
			<-found
			return "the words"
		}
	})
	each(engines, func(_ int, e *Engine) {
		e.KeepSets()
		addAll(t, e, [][]int{{0, 1}})
	})
	en, err := engines[0].Enqueue(sum("of all", floats(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer en.Release()
	engines[2].Shutdown(limit)
	pair := func(name string) {
		each(engines[:2], func(_ int, e *Engine) {
			op := sum(name, floats(1))
			op.Set = 1
			if err := do(t, e, op); err != nil {
				t.Error(err)
			}
		})
	}
	pair("first") // for which rank 0 drives, if nobody else does
	if r := <-asked; r != 2 {
		t.Errorf("asked about rank %d", r)
	}
	pair("second")
	if en.Done() || engines[0].Pending() != 1 {
		t.Errorf("the operation of all: done %v, %d pending", en.Done(), engines[0].Pending())
	}
	time.AfterFunc(10*time.Millisecond, func() { close(found) })
	engines[0].Shutdown(limit)
	if err := en.Err(); !en.Done() || err == nil || err.Reason != "the words" {
		t.Errorf("done %v, %v", en.Done(), err)
	}
}

// Ranks leave at random while others work in overlapping sets. An operation fails only if a member has left before it,
// and names such a member.
func TestRandomDepartures(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	hosts := [][][]int{{{0, 1, 2, 3, 4}}, {{0, 1}, {2, 3}, {4}}, {{0, 4}, {1, 3}, {2}}, {{0}, {1}, {2}, {3}, {4}}}
	for round := range 12 {
		engines := newHosts(t, hosts[round%len(hosts)], nil)
		sets := make([][]int, 6)
		for i := range sets {
			sets[i] = rng.Perm(len(engines))[:2+rng.IntN(3)]
			slices.Sort(sets[i])
		}
		slices.SortFunc(sets, slices.Compare)
		sets = slices.CompactFunc(sets, slices.Equal)
		steps := make([]int, 60) // the set of each step
		for i := range steps {
			steps[i] = rng.IntN(1 + len(sets))
		}
		leaves := make([]int, len(engines)) // the step before which each rank leaves
		for r := range leaves {
			leaves[r] = rng.IntN(2 * len(steps))
		}
		each(engines, func(_ int, e *Engine) {
			e.KeepSets()
			addAll(t, e, sets)
		})
		sets = slices.Insert(sets, 0, []int{0, 1, 2, 3, 4})
		each(engines, func(r int, e *Engine) { leaveAtRandom(t, e, sets, steps, leaves) })
	}
}

func leaveAtRandom(t *testing.T, e *Engine, sets [][]int, steps, leaves []int) {
	r := e.opts.Rank
	for step, set := range steps {
		if step == leaves[r] {
			e.Shutdown(limit)
			return
		}
		if !slices.Contains(sets[set], r) {
			continue
		}
		op := sum(fmt.Sprint("step ", step), floats(1))
		op.Set = set
		err := do(t, e, op)
		gone := slices.DeleteFunc(slices.Clone(sets[set]), func(m int) bool { return leaves[m] > step })
		switch {
		case len(gone) == 0 && (err != nil || float(op.Out, 0) != float32(len(sets[set]))):
			t.Errorf("rank %d, step %d in set %v, with leaves %v: %v", r, step, sets[set], leaves, err)
		case len(gone) > 0 && (err == nil || !slices.ContainsFunc(gone, func(m int) bool {
			return strings.HasPrefix(err.Reason, LeftText(fmt.Sprintf("rank %d has shut down", m)))
		})):
			t.Errorf("rank %d, step %d in set %v, of which %v have left: %v", r, step, sets[set], gone, err)
		}
	}
}
