package engine

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// made is an Op with an output that is allocated when its shape is known.
func made(op *Op) (*Op, *[]byte, *tensor.Shape) {
	out, shape := new([]byte), new(tensor.Shape)
	op.Prescale, op.Postscale = 1, 1
	op.Alloc = func(s tensor.Shape, n int) ([]byte, error) {
		*out, *shape = make([]byte, n), s
		return *out, nil
	}
	return op, out, shape
}

func finish(t testing.TB, e *Engine, en *Entry) *Error {
	t.Helper()
	if !e.Wait(en, limit) {
		t.Errorf("rank %d: %q is not done after %v", e.opts.Rank, en.Name(), limit)
		return errorf(UnknownError, "time-out")
	}
	return en.Err()
}

func TestAdasumOfOrthogonalVectorsIsTheirSum(t *testing.T) {
	inWorlds(t, []int{4}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			var parallel, orthogonal [4]float32
			orthogonal[r] = float32(r + 1)
			parallel = [4]float32{1, 2, 3, 4}
			var all []*Entry
			a, b := floats(orthogonal[:]...), floats(parallel[:]...)
			for name, data := range map[string][]byte{"orthogonal": a, "parallel": b} {
				op := sum(name, data)
				op.Type, op.ReduceOp = operation.Adasum, tensor.Adasum
				en, err := e.Enqueue(op)
				if err != nil {
					t.Error(err)
					return
				}
				all = append(all, en)
			}
			for _, en := range all {
				if err := finish(t, e, en); err != nil {
					t.Error(err)
				}
				en.Release()
			}
			for i := range 4 {
				if float(a, i) != float32(i+1) || float(b, i) != float32(i+1) {
					t.Errorf("rank %d element %d: %v, %v", r, i, float(a, i), float(b, i))
				}
			}
		})
	})
}

// A group starts only when all of it is ready everywhere; then all of it is executed.
func TestGroup(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			for round := range 6 {
				const n = 7
				data := make([][]byte, n)
				ops := make([]Op, n)
				for i := range ops {
					data[i] = floats(float32(r+i), float32(round))
					ops[i] = *sum(fmt.Sprintf("g_%dof%d", i+1, n), data[i])
				}
				all, err := e.EnqueueGroup("g", ops)
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					return
				}
				for i, en := range all {
					if err := finish(t, e, en); err != nil || float(data[i], 0) != float32(3+3*i) ||
						float(data[i], 1) != float32(3*round) {
						t.Errorf("rank %d tensor %d: %v %v", r, i, float(data[i], 0), err)
					}
					en.Release()
				}
			}
		})
	})
}

func TestGroupIsSubmittedWholeOrNotAtAll(t *testing.T) {
	e := newWorld(t, 2, true, nil)[0]
	for name, spoil := range map[string]func(ops []Op){
		"name twice":  func(ops []Op) { ops[2].Name = ops[0].Name },
		"other type":  func(ops []Op) { ops[1].Type = operation.Broadcast },
		"bad operand": func(ops []Op) { ops[2].In = ops[2].In[:1] },
	} {
		ops := []Op{*sum("a", floats(1)), *sum("b", floats(1)), *sum("c", floats(1))}
		spoil(ops)
		if _, err := e.EnqueueGroup("g", ops); err == nil || err.Code != InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		if n := waits(e); n != 0 {
			t.Fatalf("%s: %d operations are pending", name, n)
		}
	}
}

// Ranks run out of data one after the other; the rest go on with zeros of them.
func TestJoin(t *testing.T) {
	inWorlds(t, []int{4}, func(t *testing.T, engines []*Engine) {
		for range 3 {
			each(engines, func(r int, e *Engine) { trainAndJoin(t, e, r, len(engines)) })
		}
	})
}

// trainAndJoin has rank r take 3+r steps of two sums, and join.
func trainAndJoin(t *testing.T, e *Engine, rank, size int) {
	for step := range 3 + rank {
		want := float32(0)
		for m := max(0, step-2); m < size; m++ { // those that take this step, too
			want += float32(m + 1)
		}
		for _, name := range []string{"x", "y"} {
			data := floats(float32(rank + 1))
			if err := do(t, e, sum(name, data)); err != nil || float(data, 0) != want {
				t.Errorf("rank %d step %d: %v, want %v; %v", rank, step, float(data, 0), want, err)
				return
			}
		}
	}
	en, err := e.Enqueue(&Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1, Postscale: 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer en.Release()
	if _, err := e.Enqueue(sum("too late", floats(1))); err == nil || !strings.Contains(err.Reason, "has joined") {
		t.Errorf("a tensor after Join: %v", err)
	}
	if err := finish(t, e, en); err != nil || en.LastJoined() != size-1 {
		t.Errorf("rank %d: last joined %d, %v", rank, en.LastJoined(), err)
	}
}

// Operations that Horovod refuses after a rank has joined fail on the ranks that submit them, and work with JoinAllOps.
func TestJoinAndOtherOperations(t *testing.T) {
	for _, all := range []bool{false, true} {
		engines := newWorld(t, 3, true, func(o *Options) { o.JoinAllOps = all })
		each(engines, func(r int, e *Engine) {
			if r == 0 {
				if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
					Postscale: 1}); err != nil {
					t.Error(err)
				}
				return
			}
			g, out, _ := made(&Op{Type: operation.Allgather, DType: tensor.Uint8, Name: "g", Shape: tensor.Shape{1},
				In: []byte{byte(r)}})
			err := do(t, e, g)
			if !all && (err == nil || !strings.HasPrefix(err.Reason,
				"Allgather is not supported with Join at this time.")) {
				t.Errorf("allgather: %v", err)
			}
			if all && (err != nil || !slices.Equal(*out, []byte{1, 2})) {
				t.Errorf("allgather with JoinAllOps: %v %v", *out, err)
			}
			b := []byte{byte(r)}
			err = do(t, e, &Op{Type: operation.Broadcast, DType: tensor.Uint8, Name: "b", Root: 2,
				Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: b, Out: b})
			if !all && (err == nil || !strings.HasPrefix(err.Reason,
				"Broadcast is not supported with Join at this time.")) {
				t.Errorf("broadcast: %v", err)
			}
			if all && (err != nil || b[0] != 2) {
				t.Errorf("broadcast with JoinAllOps: %v %v", b, err)
			}
			rs, part, _ := made(&Op{Type: operation.Reducescatter, DType: tensor.Float32, ReduceOp: tensor.Sum,
				Name: "rs", Shape: tensor.Shape{3}, In: floats(1, 1, 1)})
			err = do(t, e, rs)
			if !all && (err == nil || !strings.HasPrefix(err.Reason,
				"Reducescatter is not supported with Join at this time.")) {
				t.Errorf("reducescatter: %v", err)
			}
			if all && (err != nil || float(*part, 0) != 2) {
				t.Errorf("reducescatter with JoinAllOps: %v", err)
			}
			if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
				Postscale: 1}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProcessSets(t *testing.T) {
	inWorlds(t, []int{4}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			for range 3 { // ids are used again
				useTwoSets(t, e, r)
			}
			for _, bad := range [][]int{{0, 0}, {4}, {-1}} {
				if _, err := e.AddSet(bad); err == nil {
					t.Errorf("set %v was accepted", bad)
				}
			}
		})
	})
}

// useTwoSets makes the sets of 0 and 2, and of 0, 1 and 3, works in them, and removes them.
func useTwoSets(t *testing.T, e *Engine, rank int) {
	even, err := e.AddSet([]int{2, 0})
	odd, err2 := e.AddSet([]int{1, 3, 0})
	if err != nil || err2 != nil || even == odd || even < 1 || odd < 1 {
		t.Errorf("rank %d: sets %d and %d: %v, %v", rank, even, odd, err, err2)
		return
	}
	if _, err := e.AddSet([]int{0, 2}); !errors.Is(err, ErrSetExists) {
		t.Errorf("the same set again: %v", err)
	}
	if len(e.Sets()) != 3 {
		t.Errorf("%d sets", len(e.Sets()))
	}
	workInSet(t, e, rank, even, []int{0, 2})
	workInSet(t, e, rank, odd, []int{0, 1, 3})
	if err := do(t, e, sum("world", floats(1))); err != nil {
		t.Error(err)
	}
	for _, id := range []int{odd, even} {
		if err := e.RemoveSet(id); err != nil {
			t.Errorf("remove %d: %v", id, err)
		}
	}
	if err := e.RemoveSet(odd); !errors.Is(err, ErrUnknownSet) {
		t.Errorf("remove again: %v", err)
	}
}

// workInSet sums and broadcasts in a set; a rank outside is refused.
func workInSet(t *testing.T, e *Engine, rank, set int, members []int) {
	data := floats(float32(rank))
	op := sum("x", data)
	op.Set = set
	err := do(t, e, op)
	if !slices.Contains(members, rank) {
		outside := fmt.Sprintf("Rank %d is not a member of the provided process set.", rank)
		if err == nil || err.Code != InvalidArgument || !strings.Contains(err.Reason, outside) {
			t.Errorf("rank %d outside: %v", rank, err)
		}
		return
	}
	want := float32(0)
	for _, m := range members {
		want += float32(m)
	}
	if err != nil || float(data, 0) != want {
		t.Errorf("rank %d in set %v: %v %v", rank, members, float(data, 0), err)
	}
	root := members[len(members)-1]
	data = floats(float32(rank))
	err = do(t, e, &Op{Type: operation.Broadcast, DType: tensor.Float32, Name: "b", Root: root, Set: set,
		Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: data, Out: data})
	if err != nil || float(data, 0) != float32(root) {
		t.Errorf("broadcast in set %v: %v %v", members, float(data, 0), err)
	}
}

// One process set too many is refused on all ranks, and everything goes on.
func TestTooManySets(t *testing.T) {
	engines := newWorld(t, 6, true, nil)
	each(engines, func(r int, e *Engine) {
		var ids []int
		for mask := 1; len(ids) < MaxSets-1; mask++ {
			var ranks []int
			for m := range 6 {
				if mask>>m&1 == 1 {
					ranks = append(ranks, m)
				}
			}
			id, err := e.AddSet(ranks)
			if err != nil {
				t.Errorf("rank %d, set %d: %v", r, len(ids), err)
				return
			}
			ids = append(ids, id)
		}
		var ee *Error
		if _, err := e.AddSet([]int{5, 4, 3, 2}); !errors.As(err, &ee) || ee.Code != InvalidArgument ||
			!strings.Contains(ee.Reason, "remove one first") {
			t.Errorf("rank %d: one too many: %v", r, err)
		}
		if err := e.RemoveSet(ids[3]); err != nil {
			t.Error(err)
		}
		if _, err := e.AddSet([]int{5, 4, 3, 2}); err != nil {
			t.Errorf("rank %d after a removal: %v", r, err)
		}
	})
}

// Operations pending in a set that is removed end with Aborted.
func TestRemovedSetEndsWhatIsPending(t *testing.T) {
	engines := newWorld(t, 3, true, nil)
	each(engines, func(r int, e *Engine) {
		id, err := e.AddSet([]int{0, 1})
		if err != nil {
			t.Error(err)
			return
		}
		var en *Entry
		if r == 0 { // alone
			op := sum("x", floats(1))
			op.Set = id
			var err *Error
			if en, err = e.Enqueue(op); err != nil {
				t.Error(err)
				return
			}
		}
		if err := e.RemoveSet(id); err != nil {
			t.Error(err)
		}
		if en != nil {
			if err := finish(t, e, en); err == nil || err.Code != Aborted || !strings.Contains(err.Reason,
				"Process set has been removed") {
				t.Errorf("pending: %v", err)
			}
			en.Release()
		}
		op := sum("x", floats(1))
		op.Set = id
		if _, err := e.Enqueue(op); err == nil || !strings.Contains(err.Reason, "does not exist") {
			t.Errorf("after the removal: %v", err)
		}
	})
}

// Lanes are independent. With A = {0,1,2} and B = {0,1,3}, rank 0 starts with A and rank 1 with B, and each waits
// before it goes on: nobody deadlocks. An operation that one member of A withholds does not hold up B.
func TestLanesAreIndependent(t *testing.T) {
	inWorlds(t, []int{4}, func(t *testing.T, engines []*Engine) {
		release := make(chan struct{})
		each(engines, func(r int, e *Engine) {
			a, _ := e.AddSet([]int{0, 1, 2})
			b, _ := e.AddSet([]int{0, 1, 3})
			submit := func(set int, name string) *Entry {
				op := sum(name, floats(1))
				op.Set = set
				en, err := e.Enqueue(op)
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					return nil
				}
				return en
			}
			wait := func(en *Entry) {
				if en != nil && finish(t, e, en) == nil {
					en.Release()
				}
			}
			switch r {
			case 0:
				held := submit(a, "held")
				for i := range 20 {
					wait(submit(b, fmt.Sprint("b", i%3)))
				}
				close(release)
				wait(held)
			case 1:
				held := submit(a, "held")
				for i := range 20 {
					wait(submit(b, fmt.Sprint("b", i%3)))
				}
				wait(held)
			case 2:
				<-release // only after all of B is done
				wait(submit(a, "held"))
			case 3:
				for i := range 20 {
					wait(submit(b, fmt.Sprint("b", i%3)))
				}
			}
		})
	})
}

// Random sets overlap. Each member submits in an order of its own from several goroutines, while other sets come and
// go.
func TestRandomOverlappingSets(t *testing.T) {
	const size, count = 6, 5
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	inWorlds(t, []int{size}, func(t *testing.T, engines []*Engine) {
		rnd := rand.New(rand.NewSource(seed))
		var sets [][]int
		for len(sets) < count {
			members := rnd.Perm(size)[:1+rnd.Intn(size-1)]
			slices.Sort(members)
			if !slices.ContainsFunc(sets, func(o []int) bool { return slices.Equal(o, members) }) {
				sets = append(sets, members)
			}
		}
		each(engines, func(r int, e *Engine) {
			ids := make([]int, count)
			for i, members := range sets {
				var err error
				if ids[i], err = e.AddSet(members); err != nil {
					t.Errorf("rank %d: %v", r, err)
					return
				}
			}
			var wg sync.WaitGroup
			for worker := range 2 {
				w := setWorker{t, e, r, worker, sets, ids, rand.New(rand.NewSource(seed + int64(10*r+worker)))}
				wg.Go(func() {
					for round := 0; round < 3 && w.submit(round); round++ {
					}
				})
			}
			addAndRemoveSets(t, e, r)
			wg.Wait()
		})
	})
}

// A setWorker is one of a rank's goroutines that submit tensors in sets.
type setWorker struct {
	t            *testing.T
	e            *Engine
	rank, worker int
	sets         [][]int // the members of each
	ids          []int
	rnd          *rand.Rand
}

// submit enqueues the round's tensors of all sets in a random order, and checks their sums.
func (w *setWorker) submit(round int) bool {
	const tensors = 12
	var all []*Entry
	var data [][]byte
	var want []float32
	for _, k := range w.rnd.Perm(len(w.sets) * tensors) {
		s := k % len(w.sets)
		if !slices.Contains(w.sets[s], w.rank) {
			continue
		}
		d := floats(float32(w.rank + k + round))
		op := sum(fmt.Sprintf("%d.%d", w.worker, k), d)
		op.Set = w.ids[s]
		en, err := w.e.Enqueue(op)
		if err != nil {
			w.t.Errorf("rank %d: %v", w.rank, err)
			return false
		}
		total := float32(0)
		for _, m := range w.sets[s] {
			total += float32(m + k + round)
		}
		all, data, want = append(all, en), append(data, d), append(want, total)
	}
	for i, en := range all {
		if err := finish(w.t, w.e, en); err != nil || float(data[i], 0) != want[i] {
			w.t.Errorf("rank %d %q: %v, want %v; %v", w.rank, en.Name(), float(data[i], 0), want[i], err)
			return false
		}
		en.Release()
	}
	return true
}

// addAndRemoveSets makes three sets that others may have made, too, and removes its own.
func addAndRemoveSets(t *testing.T, e *Engine, rank int) {
	for i := range 3 {
		id, err := e.AddSet([]int{i, i + 3})
		if errors.Is(err, ErrSetExists) {
			continue
		}
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			break
		}
		if err := e.RemoveSet(id); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank that has no memory for an output fails alone, and the others get their outputs.
func TestNoMemoryForTheOutput(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			for _, kind := range []operation.Kind{operation.Allgather, operation.Alltoall, operation.Reducescatter} {
				op, out, _ := made(&Op{Type: kind, DType: tensor.Float32, ReduceOp: tensor.Sum,
					Name: fmt.Sprint(kind), Shape: tensor.Shape{3}, In: floats(1, 1, 1)})
				op.Prescale = 3
				if kind != operation.Reducescatter {
					op.Prescale = 1
				}
				if r == 1 {
					op.Alloc = func(tensor.Shape, int) ([]byte, error) { return nil, errors.New("no memory") }
				}
				err := do(t, e, op)
				switch {
				case r == 1 && (err == nil || err.Code != UnknownError || !strings.Contains(err.Reason, "no memory")):
					t.Errorf("%v without memory: %v", kind, err)
				case r != 1 && (err != nil || kind == operation.Reducescatter && float(*out, 0) != 9 ||
					kind != operation.Reducescatter && float(*out, 2) != 1):
					t.Errorf("%v on rank %d: %v", kind, r, err)
				}
			}
			if err := do(t, e, sum("after", floats(1))); err != nil {
				t.Errorf("rank %d afterwards: %v", r, err)
			}
		})
	})
}

// With a cycle time, tensors are held back, and fuse.
func TestCycleTimeFuses(t *testing.T) {
	engines := newWorld(t, 2, true, func(o *Options) { o.CycleTime = 20 * time.Millisecond })
	each(engines, func(r int, e *Engine) {
		var all []*Entry
		for i := range 40 {
			en, err := e.Enqueue(sum(fmt.Sprint(i), floats(1)))
			if err != nil {
				t.Error(err)
				return
			}
			all = append(all, en)
			time.Sleep(100 * time.Microsecond)
		}
		for _, en := range all {
			if err := finish(t, e, en); err != nil {
				t.Error(err)
			}
			en.Release()
		}
		if n := e.Counters().Batches.Load(); n > 20 {
			t.Errorf("rank %d: %d batches for 40 tensors", r, n)
		}
	})
}

// A rank that leaves closes every lane. Operations on which all have agreed in the world are still executed, although
// the lane of another set is found closed before.
func TestShutdownWithSetsFinishesTheWorldsOperations(t *testing.T) {
	for _, shared := range []bool{true, false} {
		for range 20 {
			engines := newWorld(t, 3, shared, nil)
			each(engines, func(r int, e *Engine) {
				for _, members := range [][]int{{0, 1}, {1, 2}} {
					if _, err := e.AddSet(members); err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
				}
				if err := do(t, e, &Op{Type: operation.Barrier, DType: tensor.Uint8, Name: "barrier.noname",
					Prescale: 1, Postscale: 1}); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				e.Shutdown(limit)
			})
		}
	}
}

// A rank that leaves ends the sets that it is not in, too: operations pending there fail at once, although no member of
// the set has left.
func TestShutdownEndsTheSetsOfOthers(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		failed := make(chan struct{})
		each(engines, func(r int, e *Engine) {
			id, err := e.AddSet([]int{0, 1})
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			switch r {
			case 0:
				op := sum("alone", floats(1))
				op.Set = id
				if err := do(t, e, op); err == nil || !strings.Contains(err.Reason, "Horovod has been shut down") {
					t.Errorf("pending in the set: %v", err)
				}
				close(failed)
			case 1:
				<-failed
			case 2:
				e.Shutdown(limit)
			}
		})
	})
}
