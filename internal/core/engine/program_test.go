package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/property"
)

// A random program: every rank submits the same operations, each rank in its own order and at its own pace, and gets
// the results of a sequential model. Names come again in later rounds, so that requests become cards, are evicted and
// change.

// step is one operation of a program, the same on all ranks.
type step struct {
	name  string
	kind  operation.Kind
	op    tensor.ReduceOp
	rows  int // of each rank; Allgather and Alltoall: plus the rank
	root  int
	group int // 0: alone; steps of one number are submitted together
	// inPlace: a rank's rows, of a Reducescatter those of its output and of an Allgather those of its input, are where
	// the rows of all are.
	inPlace bool
}

// value is what a rank has in each element of its input.
func (s step) value(rank int) int32 { return int32(rank*7 + len(s.name)*3 + s.rows) }

func (s step) rowsOf(rank int) int {
	if s.kind == operation.Allgather || s.kind == operation.Alltoall {
		return s.rows + rank
	}
	return s.rows
}

// sends is how many rows a rank sends to another in an Alltoall.
func (s step) sends(size, from, to int) int {
	rows := s.rowsOf(from)
	n := rows / size
	if to < rows%size {
		n++
	}
	return n
}

// result is what the sequential model computes: the elements of a rank's output.
func (s step) result(size, rank int) []int32 {
	combined := s.value(0)
	for m := 1; m < size; m++ {
		switch s.op {
		case tensor.Min:
			combined = min(combined, s.value(m))
		case tensor.Max:
			combined = max(combined, s.value(m))
		default:
			combined += s.value(m)
		}
	}
	var out []int32
	switch s.kind {
	case operation.Allreduce:
		out = slices.Repeat([]int32{combined}, s.rows)
	case operation.Reducescatter:
		n := s.rows / size
		if rank < s.rows%size {
			n++
		}
		out = slices.Repeat([]int32{combined}, n)
	case operation.Broadcast:
		out = slices.Repeat([]int32{s.value(s.root)}, s.rows)
	case operation.Allgather:
		for m := range size {
			out = append(out, slices.Repeat([]int32{s.value(m)}, s.rowsOf(m))...)
		}
	case operation.Alltoall:
		for m := range size {
			out = append(out, slices.Repeat([]int32{s.value(m)}, s.sends(size, m, rank))...)
		}
	}
	return out
}

// submission is a rank's call of the step; got returns its output.
func (s step) submission(size, rank int) (op Op, got func() []byte) {
	rows := s.rowsOf(rank)
	in := make([]byte, 0, 4*rows)
	for range rows {
		in = binary.NativeEndian.AppendUint32(in, uint32(s.value(rank)))
	}
	op = Op{Type: s.kind, DType: tensor.Int32, ReduceOp: s.op, Name: s.name, Root: s.root,
		Shape: tensor.Shape{int64(rows)}, Prescale: 1, Postscale: 1, In: in}
	out := new([]byte)
	switch s.kind {
	case operation.Allreduce, operation.Broadcast:
		*out = make([]byte, len(in))
		op.Out = *out
	case operation.Reducescatter, operation.Allgather:
		if s.inPlace {
			s.place(&op, out, size, rank)
			break
		}
		fallthrough
	default:
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) {
			*out = make([]byte, n)
			return *out, nil
		}
	}
	if s.kind == operation.Alltoall {
		for m := range size {
			op.Splits = append(op.Splits, int32(s.sends(size, rank, m)))
		}
	}
	return op, func() []byte { return *out }
}

// place makes op work in place. Its output will be in out.
func (s step) place(op *Op, out *[]byte, size, rank int) {
	if s.kind == operation.Reducescatter {
		first := operation.Begin(int64(s.rows), rank, size)
		*out = op.In[4*first:][:4*operation.Share(int64(s.rows), rank, size)]
		op.Out = *out
		return
	}
	first, all := 0, 0
	for m := range size {
		if m < rank {
			first += s.rowsOf(m)
		}
		all += s.rowsOf(m)
	}
	*out = make([]byte, 4*all)
	own := (*out)[4*first:][:len(op.In)]
	copy(own, op.In)
	op.In, op.Target = own, *out
	op.Alloc = func(tensor.Shape, int) ([]byte, error) { return *out, nil }
}

// drawProgram draws the steps of one round.
func drawProgram(t *property.T, size, round int) []step {
	kinds := []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Allgather, operation.Allgather,
		operation.Broadcast, operation.Alltoall, operation.Reducescatter, operation.Reducescatter}
	n := t.Int("steps", 1, 14)
	steps := make([]step, n)
	for i := range steps {
		steps[i] = step{
			name: fmt.Sprintf("t%d", i),
			kind: property.Pick(t, "kind", kinds),
			op:   tensor.Sum,
			rows: property.Pick(t, "rows", []int{0, 1, 2, 5, 40, 3000}),
			root: t.Int("root", 0, size-1),
		}
		steps[i].inPlace = t.Bool("in place")
		if steps[i].kind == operation.Allreduce || steps[i].kind == operation.Reducescatter {
			steps[i].op = property.Pick(t, "op", []tensor.ReduceOp{tensor.Sum, tensor.Sum, tensor.Min, tensor.Max})
		}
		if i > 0 && steps[i-1].kind == steps[i].kind && t.Bool("group") {
			if steps[i-1].group == 0 {
				steps[i-1].group = i + 100*round + 1
			}
			steps[i].group = steps[i-1].group
		}
	}
	return steps
}

func TestRandomPrograms(t *testing.T) {
	property.Check(t, func(t *property.T) {
		size := t.Int("ranks", 2, 16)
		shared := t.Bool("shared")
		seed := int64(t.Uint64("seed"))
		rounds := make([][]step, t.Int("rounds", 1, 4))
		for i := range rounds {
			rounds[i] = drawProgram(t, size, i)
			if i > 0 && t.Bool("same again") {
				rounds[i] = rounds[i-1]
			}
		}
		change := func(o *Options) {
			o.CacheCapacity = property.Pick(t, "capacity", []int{0, 1, 5, 64})
			o.FusionThreshold = property.Pick(t, "threshold", []int64{0, 100, 1 << 20})
			o.GroupsApart = t.Bool("groups apart")
		}
		var engines []*Engine
		if t.Bool("hosts") {
			hosts := make([][]int, t.Int("number of hosts", 2, size))
			for r := range size {
				hosts[r%len(hosts)] = append(hosts[r%len(hosts)], r)
			}
			engines = makeHosts(t, hosts, property.Pick(t, "early", []int{0, 8, 4096}), change)
			if t.Bool("some stay behind") {
				for _, e := range engines {
					e.world.settings.early = property.Pick(t, "most", []int{0, 20, e.world.settings.early})
					e.world.boundEarly()
				}
			}
		} else {
			engines = makeWorld(t, size, shared, change)
		}
		each(engines, func(r int, e *Engine) {
			rnd := rand.New(rand.NewSource(seed + int64(r)))
			for round, steps := range rounds {
				if !playRound(t, e, steps, size, r, rnd) {
					t.Errorf("round %d of rank %d, seed %d", round, r, seed)
					e.Abort(fmt.Errorf("the test has failed on rank %d", r))
					break
				}
			}
		})
		for r, e := range engines {
			if n := len(e.Waiting()); n != 0 {
				t.Errorf("rank %d: %d operations are left", r, n)
			}
		}
		each(engines, func(_ int, e *Engine) { e.Shutdown(limit) })
	})
}

// playRound submits the steps in a random order, waits for some in between, and
// compares all results with the model's.
func playRound(t *property.T, e *Engine, steps []step, size, rank int, rnd *rand.Rand) bool {
	units := map[int][]step{} // the steps that are submitted together
	for i, s := range steps {
		key := -1 - i
		if s.group > 0 {
			key = s.group
		}
		units[key] = append(units[key], s)
	}
	keys := make([]int, 0, len(units))
	for k := range units {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })

	type pending struct {
		step step
		en   *Entry
		got  func() []byte
	}
	var all []pending
	for _, k := range keys {
		ops := make([]Op, len(units[k]))
		gots := make([]func() []byte, len(ops))
		for i, s := range units[k] {
			ops[i], gots[i] = s.submission(size, rank)
		}
		var entries []*Entry
		var err *Error
		if k > 0 {
			entries, err = e.EnqueueGroup(fmt.Sprint("g", k), ops)
		} else {
			var en *Entry
			en, err = e.Enqueue(&ops[0])
			entries = []*Entry{en}
		}
		if err != nil {
			t.Errorf("rank %d submits %v: %v", rank, units[k], err)
			return false
		}
		for i, en := range entries {
			all = append(all, pending{units[k][i], en, gots[i]})
		}
		if rnd.Intn(4) == 0 { // one look, as in a program that polls
			e.Wait(all[rnd.Intn(len(all))].en, 0)
		}
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		if !e.Wait(p.en, limit) {
			t.Errorf("rank %d: %+v is not done", rank, p.step)
			return false
		}
		if err := p.en.Err(); err != nil {
			t.Errorf("rank %d: %+v: %v", rank, p.step, err)
			return false
		}
		var got []int32
		for b := p.got(); len(b) > 0; b = b[4:] {
			got = append(got, int32(binary.NativeEndian.Uint32(b)))
		}
		if want := p.step.result(size, rank); !slices.Equal(got, want) {
			t.Errorf("rank %d: %+v: %d elements %v, want %d %v", rank, p.step, len(got), got[:min(4, len(got))],
				len(want), want[:min(4, len(want))])
			return false
		}
		p.en.Release()
	}
	return true
}
