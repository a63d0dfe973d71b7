package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// broadcastOp describes an in-place broadcast.
func broadcastOp(name string, root int, data []byte) *Op {
	return &Op{Type: operation.Broadcast, DType: tensor.Float32, Name: name, Root: root,
		Shape: tensor.Shape{int64(len(data) / 4)}, Prescale: 1, Postscale: 1, In: data, Out: data}
}

// gatherOp describes an allgather of data into target, unless target is nil.
func gatherOp(name string, data, target []byte) *Op {
	return &Op{Type: operation.Allgather, DType: tensor.Float32, Name: name, Shape: tensor.Shape{int64(len(data) / 4)},
		Prescale: 1, Postscale: 1,
		In: data, Target: target, Alloc: func(_ tensor.Shape, n int) ([]byte, error) {
			if target != nil {
				return target, nil
			}
			return make([]byte, n), nil
		}}
}

// with describes an in-place reduction by op.
func with(op tensor.ReduceOp, name string, data []byte) *Op {
	o := sum(name, data)
	o.ReduceOp = op
	return o
}

// into describes a sum of in that is written to out.
func into(name string, in, out []byte) *Op {
	op := sum(name, in)
	op.Out = out
	return op
}

// TestSharedMemoryIsRefused: two operations share memory, and one of them writes it. The second one fails on all ranks,
// also on ranks where they share nothing. The first one works.
func TestSharedMemoryIsRefused(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second func(a, b []byte) *Op // a has 32 bytes, b 64
		why           string                // the error of the rank that shares memory; empty if the second is allowed
	}{
		{"in place twice", func(a, _ []byte) *Op { return sum("x", a) }, func(a, _ []byte) *Op { return sum("y", a) },
			`Allreduce of tensor "y" is refused: it writes memory that Allreduce of tensor "x", which is still in progress, writes, too.`},
		{"overlapping views", func(a, _ []byte) *Op { return sum("x", a[:20]) },
			func(a, _ []byte) *Op { return sum("y", a[16:]) }, "writes, too"},
		{"a part", func(a, _ []byte) *Op { return sum("x", a) }, func(a, _ []byte) *Op { return sum("y", a[8:12]) },
			"writes, too"},
		{"neighbours", func(a, _ []byte) *Op { return sum("x", a[:16]) },
			func(a, _ []byte) *Op { return sum("y", a[16:]) }, ""},
		{"two readers", func(a, b []byte) *Op { return into("x", a, b[:32]) },
			func(a, _ []byte) *Op { return gatherOp("y", a, nil) }, ""},
		{"writes what is read", func(a, _ []byte) *Op { return gatherOp("x", a, nil) },
			func(a, _ []byte) *Op { return sum("y", a) },
			`it writes memory that Allgather of tensor "x", which is still in progress, reads.`},
		{"reads what is written", func(a, _ []byte) *Op { return sum("x", a) },
			func(a, b []byte) *Op { return into("y", a, b[:32]) },
			`it reads memory that Allreduce of tensor "x", which is still in progress, writes.`},
		{"same output", func(a, b []byte) *Op { return into("x", a[:16], b[:16]) },
			func(a, b []byte) *Op { return into("y", a[16:], b[:16]) }, "writes, too"},
		{"output of a gather", func(a, b []byte) *Op { return gatherOp("x", a[:16], b[:32]) },
			func(_, b []byte) *Op { return sum("y", b[28:]) }, "writes, too"},
		{"one root", func(a, _ []byte) *Op { return broadcastOp("x", 1, a) },
			func(a, _ []byte) *Op { return broadcastOp("y", 1, a) }, ""},
		{"two roots", func(a, _ []byte) *Op { return broadcastOp("x", 1, a) },
			func(a, _ []byte) *Op { return broadcastOp("y", 0, a) }, "writes, too"},
		{"average again", func(a, _ []byte) *Op { return with(tensor.Average, "x", a) },
			func(a, _ []byte) *Op { return with(tensor.Average, "y", a) }, ""},
		{"maximum again", func(a, _ []byte) *Op { return with(tensor.Max, "x", a) },
			func(a, _ []byte) *Op { return with(tensor.Max, "y", a) }, ""},
		{"product again", func(a, _ []byte) *Op { return with(tensor.Product, "x", a) },
			func(a, _ []byte) *Op { return with(tensor.Product, "y", a) }, "writes, too"},
		{"average of a sum", func(a, _ []byte) *Op { return sum("x", a) },
			func(a, _ []byte) *Op { return with(tensor.Average, "y", a) }, "writes, too"},
		{"average of a part", func(a, _ []byte) *Op { return with(tensor.Average, "x", a) },
			func(a, _ []byte) *Op { return with(tensor.Average, "y", a[:16]) }, "writes, too"},
		{"average elsewhere", func(a, b []byte) *Op { o := with(tensor.Average, "x", a); o.Out = b[:32]; return o },
			func(_, b []byte) *Op { return with(tensor.Average, "y", b[:32]) }, "writes, too"},
		{"average with a factor", func(a, _ []byte) *Op { return with(tensor.Average, "x", a) },
			func(a, _ []byte) *Op { o := with(tensor.Average, "y", a); o.Postscale = 2; return o }, "writes, too"},
		{"copies of the same", func(a, b []byte) *Op { return copyOf(b[:16], sum("x", a[:16])) },
			func(a, b []byte) *Op { return copyOf(b[8:24], sum("y", a[16:])) }, "writes, too"},
		{"copies of neighbours", func(a, b []byte) *Op { return copyOf(b[:16], sum("x", a[:16])) },
			func(a, b []byte) *Op { return copyOf(b[16:32], sum("y", a[16:])) }, ""},
		{"nothing", func(a, _ []byte) *Op { return sum("x", a[:0]) }, func(a, _ []byte) *Op { return sum("y", a[:0]) },
			""},
	} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", c.name, shared), func(t *testing.T) {
				playShared(t, c.first, c.second, shared, c.why)
			})
		}
	}
}

// playShared submits first and second on two ranks. On rank 0 both use the same memory, on rank 1 only if shared is
// true. When rank 1 begins, both are in progress on rank 0.
func playShared(t *testing.T, first, second func(a, b []byte) *Op, shared bool, why string) {
	engines := newWorld(t, 2, true, nil)
	a, b := make([]byte, 32), make([]byte, 64)
	ops := [][2]*Op{{first(a, b), second(a, b)}, {first(make([]byte, 32), make([]byte, 64)), second(make([]byte, 32),
		make([]byte, 64))}}
	if shared {
		a, b = make([]byte, 32), make([]byte, 64)
		ops[1] = [2]*Op{first(a, b), second(a, b)}
	}
	var entries [2][2]*Entry
	for r, e := range engines {
		for i, op := range ops[r] {
			entries[r][i] = enqueue(t, e, op)
		}
	}
	for r, e := range engines {
		if err := finish(t, e, entries[r][0]); err != nil {
			t.Errorf("first, rank %d: %v", r, err)
		}
		err := finish(t, e, entries[r][1])
		switch {
		case why == "":
			if err != nil {
				t.Errorf("second, rank %d: %v", r, err)
			}
		case err == nil,
			r == 0 && (err.Code != InvalidArgument || !strings.Contains(err.Reason, why)),
			r == 1 && !shared && (err.Code != PreconditionError || !strings.Contains(err.Reason, "rank 0 refuses ")):
			t.Errorf("second, rank %d: %v", r, err)
		}
		entries[r][0].Release()
		entries[r][1].Release()
	}
	each(engines, func(r int, e *Engine) { // the refused operation has left no trace, and ended ones use no memory
		for _, i := range []int{1, 0} {
			if err := do(t, e, ops[r][i]); err != nil {
				t.Errorf("again, rank %d: %v", r, err)
			}
		}
	})
}

func enqueue(t *testing.T, e *Engine, op *Op) *Entry {
	t.Helper()
	en, err := e.Enqueue(op)
	if err != nil {
		t.Fatal(err)
	}
	return en
}

// TestAverageOfAverages: averages of the same memory are made one after the other, whichever other tensors fuse, also
// if a rank has other memory for one of them.
func TestAverageOfAverages(t *testing.T) {
	for _, shared := range []bool{true, false} {
		for round := range 5 { // the later ones by the cache
			engines := newWorld(t, 3, shared, nil)
			each(engines, func(r int, e *Engine) {
				x, y, other := floats(float32(3*r)), floats(6), floats(float32(r))
				if r < 2 {
					y = x
				}
				ops := []*Op{with(tensor.Average, "x", x), with(tensor.Average, "other", other),
					with(tensor.Average, "y", y)}
				var entries []*Entry
				for _, op := range ops {
					entries = append(entries, enqueue(t, e, op))
				}
				for _, en := range entries {
					if err := finish(t, e, en); err != nil {
						t.Errorf("round %d rank %d: %v", round, r, err)
					}
					en.Release()
				}
				want := [][2]float32{{3, 4}, {4, 3}} // x first: 3, then y: (3+3+6)/3; or y first: 3, then x: (3+3+6)/3
				got := [2]float32{float(x, 0), float(y, 0)}
				if r < 2 {
					want = [][2]float32{{4, 4}}
				}
				if !slices.Contains(want, got) || float(other, 0) != 1 {
					t.Errorf("round %d rank %d: %v and %v, want one of %v and 1", round, r, got, float(other, 0), want)
				}
			})
		}
	}
}

// TestTensorTwiceInAGroup: the second of the two is refused, the rest of the group is done.
func TestTensorTwiceInAGroup(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		for range 4 { // the later ones by the cache
			a, b := floats(1), floats(2)
			entries, failure := e.EnqueueGroup("g", []Op{*sum("g.0", a), *sum("g.1", b), *sum("g.2", a)})
			if failure != nil {
				t.Error(failure)
				return
			}
			for i, en := range entries {
				err := finish(t, e, en)
				if i < 2 && err != nil {
					t.Errorf("rank %d tensor %d: %v", r, i, err)
				}
				if i == 2 && (err == nil || !strings.Contains(err.Reason,
					`Allreduce of tensor "g.0", of the same group,`)) {
					t.Errorf("rank %d: %v", r, err)
				}
				en.Release()
			}
			if float(a, 0) != 2 || float(b, 0) != 4 {
				t.Errorf("rank %d: %v, %v", r, float(a, 0), float(b, 0))
			}
		}
	})
}

// TestGroupThatIsNotTaken: the engine expects no callback from a group that it has refused.
func TestGroupThatIsNotTaken(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	first := enqueue(t, engines[0], sum("x", floats(1)))
	ops := []Op{*sum("g.0", floats(1)), *sum("x", floats(1))}
	for i := range ops {
		ops[i].Done = func(*Entry) { t.Error("called") }
	}
	if _, err := engines[0].EnqueueGroup("g", ops); err == nil {
		t.Error("a name that is pending was taken")
	}
	if n := engines[0].callbacks.Load(); n != 0 {
		t.Errorf("%d callbacks are expected", n)
	}
	if err := do(t, engines[1], sum("x", floats(1))); err != nil {
		t.Error(err)
	}
	if err := finish(t, engines[0], first); err != nil {
		t.Error(err)
	}
	first.Release()
}

// TestSharedMemoryOfTwoSets: sets do not wait for one another, and yet their operations may not share memory either.
func TestSharedMemoryOfTwoSets(t *testing.T) {
	engines := newWorld(t, 3, true, nil)
	each(engines, func(r int, e *Engine) {
		set, err := e.AddSet([]int{0, 1})
		if err != nil {
			t.Error(err)
			return
		}
		data := make([]byte, 4)
		x, y := broadcastOp("x", 0, data), broadcastOp("y", 0, data)
		x.Set = set
		if r > 0 { // after rank 0, which has both pending at once
			if err := do(t, e, y); err == nil || !strings.Contains(err.Reason, "rank 0 refuses ") {
				t.Errorf("rank %d: the world's: %v", r, err)
			}
		}
		if r == 1 {
			if err := do(t, e, x); err != nil {
				t.Error(err)
			}
		}
		if r > 0 {
			return
		}
		first := enqueue(t, e, x)
		if err := do(t, e, y); err == nil || err.Code != InvalidArgument {
			t.Errorf("the world's, to memory of the set's: %v", err)
		}
		if err := finish(t, e, first); err != nil {
			t.Error(err)
		}
		first.Release()
	})
}

// TestFailureFreesMemory: operations that an abort has ended use no memory.
func TestFailureFreesMemory(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	en := enqueue(t, engines[0], into("x", floats(1), floats(2)))
	engines[1].Abort(errors.New("enough"))
	if err := finish(t, engines[0], en); err == nil {
		t.Error("done in spite of the abort")
	}
	en.Release()
	if m := &engines[0].inUse; !m.read.empty() || !m.written.empty() {
		t.Error("memory is in use by nothing")
	}
}

// TestOutputOverInput: the result of an operation does not depend on whether, or where, its output overlaps its input.
func TestOutputOverInput(t *testing.T) {
	const size, rows = 3, 2000
	for _, shared := range []bool{true, false} {
		for _, kind := range []operation.Kind{operation.Allgather, operation.Alltoall, operation.Reducescatter} {
			for at := range size + 1 { // in parts of the longer one; the last overlaps with two of them
				t.Run(fmt.Sprintf("%v/%v/%d", shared, kind, at), func(t *testing.T) {
					engines := newWorld(t, size, shared, nil)
					each(engines, func(r int, e *Engine) {
						apart, over := overlapping(kind, r, size, rows, -1), overlapping(kind, r, size, rows, at)
						for _, op := range []*Op{apart, over} {
							if err := do(t, e, op); err != nil {
								t.Error(err)
							}
						}
						if a, b := apart.Target, over.Target; string(a) != string(b) {
							t.Errorf("rank %d: the results differ", r)
						}
					})
				})
			}
		}
	}
}

// overlapping describes an operation whose shorter buffer is part number at of its longer one; -1: they do not overlap.
func overlapping(kind operation.Kind, rank, size, rows, at int) *Op {
	long, short := make([]byte, 4*rows*size), make([]byte, 4*rows)
	if kind == operation.Alltoall {
		short = make([]byte, 4*rows*size)
	}
	in, out := short, long
	if kind == operation.Reducescatter {
		in, out = long, short
	}
	if at >= 0 {
		begin := min(4*rows*at, len(long)-len(short))
		if at == size {
			begin = (len(long) - len(short)) / 2 &^ 3
		}
		if part := long[begin:][:len(short)]; kind == operation.Reducescatter {
			out = part
		} else {
			in = part
		}
	}
	for i := range len(in) / 4 {
		copy(in[4*i:], floats(float32(rank*1000+i%97)))
	}
	op := &Op{Type: kind, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: fmt.Sprint(kind, at),
		Shape: tensor.Shape{int64(len(in) / 4)}, Prescale: 1, Postscale: 1, In: in, Target: out,
		Alloc: func(tensor.Shape, int) ([]byte, error) { return out, nil }}
	if kind == operation.Reducescatter {
		op.Out, op.Alloc = out, nil
	}
	return op
}

// copyOf makes op say that its memory is a copy of original.
func copyOf(original []byte, op *Op) *Op {
	op.InOf = extentOf(original).begin
	op.OutOf = op.InOf
	return op
}

// TestCopiesAreInUseUntilTheRelease: the caller copies the result to its own memory after the end.
func TestCopiesAreInUseUntilTheRelease(t *testing.T) {
	e := newWorld(t, 1, true, nil)[0]
	original := make([]byte, 16)
	submit := func(name string) *Entry {
		en, err := e.Enqueue(copyOf(original, sum(name, make([]byte, 16))))
		if err != nil {
			t.Fatal(err)
		}
		en.Wait(-1)
		return en
	}
	first, second := submit("x"), submit("y")
	if first.Err() != nil || second.Err() == nil || second.Err().Code != InvalidArgument {
		t.Errorf("the first ends with %v, the second with %v", first.Err(), second.Err())
	}
	first.Release()
	second.Release()
	third := submit("z")
	if third.Err() != nil {
		t.Errorf("the memory is still in use: %v", third.Err())
	}
	third.Release()
}
