package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// twoHosts has three ranks.
var twoHosts = [][]int{{0, 2}, {1}}

// moves counts the steps of the collectives of the world's lanes: none while all data travels with the marks.
func moves(engines []*Engine) (n uint64) {
	for _, e := range engines {
		n += e.world.run.Moved()
	}
	return n
}

// repeated runs the operation that make makes, several times on all ranks, and checks each result. It reports whether
// a collective has run after the ranks had agreed on the operation once.
func repeated(t *testing.T, engines []*Engine, make func(rank int) *Op, want []byte) (moved bool) {
	t.Helper()
	var before atomic.Uint64
	for round := range 8 {
		each(engines, func(r int, e *Engine) {
			op := make(r)
			in := bytes.Clone(op.In)
			if err := do(t, e, op); err != nil || !bytes.Equal(op.Out, want) {
				t.Errorf("round %d, rank %d: %v, %x, want %x", round, r, err, op.Out, want)
			}
			if &op.In[0] != &op.Out[0] && !bytes.Equal(op.In, in) {
				t.Errorf("round %d, rank %d: the input has changed", round, r)
			}
		})
		if round == 2 {
			before.Store(moves(engines))
		}
	}
	return moves(engines) != before.Load()
}

// The data of small allreduces travels with the marks, whatever their type and operation; that of other operations
// does not. The results are the same.
func TestWhatTravelsAhead(t *testing.T) {
	three := func(change func(op *Op)) func(r int) *Op {
		return func(r int) *Op {
			op := sum("x", floats(float32(r+1), -2))
			if change != nil {
				change(op)
			}
			return op
		}
	}
	sums := floats(6, -6)
	long := make([]byte, 8192)
	for name, c := range map[string]struct {
		make    func(r int) *Op
		want    []byte
		stays   bool
		options func(o *Options)
	}{
		"sum":          {make: three(nil), want: sums},
		"out of place": {make: three(func(op *Op) { op.Out = make([]byte, 8) }), want: sums},
		"average":      {make: three(func(op *Op) { op.ReduceOp = tensor.Average }), want: floats(2, -2)},
		"postscale":    {make: three(func(op *Op) { op.Postscale = 0.5 }), want: floats(3, -3)},
		"minimum":      {make: three(func(op *Op) { op.ReduceOp = tensor.Min }), want: floats(1, -2)},
		"maximum":      {make: three(func(op *Op) { op.ReduceOp = tensor.Max }), want: floats(3, -2)},
		"product":      {make: three(func(op *Op) { op.ReduceOp = tensor.Product }), want: floats(6, -8)},
		"integers": {make: func(r int) *Op {
			op := sum("i", []byte{byte(r + 1), 200, 3, 4})
			op.DType, op.Shape = tensor.Uint8, tensor.Shape{2, 2}
			return op
		}, want: []byte{6, 88, 9, 12}},
		"no fusion":  {make: three(nil), want: sums, options: func(o *Options) { o.FusionThreshold = 0 }},
		"copied":     {make: three(func(op *Op) { op.Copied = true }), want: sums, stays: true},
		"prescale":   {make: three(func(op *Op) { op.Prescale = 0.5 }), want: floats(3, -3), stays: true},
		"compressed": {make: three(func(op *Op) { op.Wire = tensor.WireFloat16 }), want: sums, stays: true},
		"long":       {make: func(r int) *Op { return sum("long", make([]byte, 8192)) }, want: long, stays: true},
		"checked": {make: three(nil), want: sums, stays: true,
			options: func(o *Options) { o.NaNCheck = operation.NaNWarn }},
		"too few cards": {make: three(nil), want: sums, stays: true, options: func(o *Options) { o.CacheCapacity = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			engines := newHosts(t, twoHosts, c.options)
			if moved := repeated(t, engines, c.make, c.want); moved != c.stays {
				t.Errorf("a collective has run: %v", moved)
			}
		})
	}
}

// One rank that leaves its data behind makes all others move theirs as usual.
func TestOneStaysBehind(t *testing.T) {
	for behind := range 3 {
		engines := newHosts(t, twoHosts, nil)
		engines[behind].world.early.most = 0
		if !repeated(t, engines, func(r int) *Op { return sum("x", floats(float32(r))) }, floats(3)) {
			t.Error("no collective has run")
		}
	}
}

// A set of ranks on two hosts has a lane of its own, over which data travels ahead, too.
func TestDataTravelsAheadInSets(t *testing.T) {
	engines := newHosts(t, [][]int{{0, 2}, {1, 3}}, nil)
	each(engines, func(r int, e *Engine) {
		set, err := e.AddSet([]int{0, 1, 3})
		if err != nil {
			t.Error(err)
			return
		}
		if r == 2 {
			return
		}
		before := uint64(0)
		for round := range 6 {
			op := sum("x", floats(float32(r), 1))
			op.Set = set
			if err := do(t, e, op); err != nil || !bytes.Equal(op.Out, floats(4, 3)) {
				t.Errorf("rank %d: %v, %x", r, err, op.Out)
			}
			if l, _ := e.lane(op); round == 1 {
				before = l.run.Moved()
			} else if round > 1 && l.run.Moved() != before {
				t.Errorf("rank %d: a collective has run", r)
			}
		}
	})
}

// With GOROVOD_DETERMINISTIC the bits are those of the usual way.
func TestDataAheadHasTheBitsOfDeterministicSums(t *testing.T) {
	hosts := [][]int{{0, 1, 5}, {2, 4}, {3}}
	rng := rand.New(rand.NewPCG(1, 2))
	inputs := make([][]byte, 6)
	for r := range inputs {
		var v [700]float32
		for i := range v {
			v[i] = float32(rng.NormFloat64() * float64(int(1)<<rng.IntN(20)))
		}
		inputs[r] = floats(v[:]...)
	}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64} {
		var results [2][]byte
		for i, early := range []int{0, 4096} {
			engines := newHostsWith(t, hosts, early, func(o *Options) {
				o.Collective = collective.Options{Deterministic: true}
			})
			results[i] = make([]byte, len(inputs[0]))
			agreed := uint64(0)
			for round := range 4 {
				each(engines, func(r int, e *Engine) {
					op := sum("x", bytes.Clone(inputs[r]))
					op.DType, op.ReduceOp = dt, tensor.Average
					op.Shape = tensor.Shape{int64(len(op.In) / dt.Size())}
					if err := do(t, e, op); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
					if r == 4 {
						copy(results[i], op.Out)
					}
				})
				if round == 1 { // the name has its card
					agreed = moves(engines)
				}
			}
			if moved := moves(engines) != agreed; moved == (early > 0) {
				t.Errorf("up to %d bytes travel ahead: a collective has run: %v", early, moved)
			}
		}
		if !bytes.Equal(results[0], results[1]) {
			t.Errorf("%v: other bits", dt)
		}
	}
}

// The figures have what was sent ahead: each leader sends its host's sum to the root, the root sends the result to each
// child, and members of a host put their data into shared memory.
func TestTrafficOfDataAhead(t *testing.T) {
	engines := newHosts(t, twoHosts, nil)
	op := func(int) *Op { return sum("x", make([]byte, 64)) }
	repeated(t, engines, op, make([]byte, 64))
	type sent [feed.NumWays]uint64
	count := func(e *Engine) (s sent) {
		for _, x := range e.Figures().Traffic {
			s[x.Way] += x.Bytes
		}
		return s
	}
	var before [3]sent
	for r, e := range engines {
		before[r] = count(e)
	}
	repeated(t, engines, op, make([]byte, 64))
	for r, e := range engines {
		got := count(e)
		for way := range got {
			got[way] -= before[r][way]
		}
		want := sent{}
		want[feed.ByTCP] = []uint64{8 * 64, 8 * 64, 0}[r]
		want[feed.ByMemory] = []uint64{8 * 64, 0, 8 * 64}[r]
		if got != want {
			t.Errorf("rank %d has sent %v, want %v", r, got, want)
		}
		if w := e.Figures().Works; len(w) != 1 || w[0].Bytes != 16*64 {
			t.Errorf("rank %d: works %+v", r, w)
		}
	}
}

// A rank that joins early contributes nothing to later sums, whose data travelled ahead before.
func TestJoinAfterDataAhead(t *testing.T) {
	for joins := range 3 {
		t.Run(fmt.Sprint("rank ", joins), func(t *testing.T) {
			engines := newHosts(t, twoHosts, nil)
			repeated(t, engines, func(r int) *Op { return sum("x", floats(float32(r))) }, floats(3))
			each(engines, func(r int, e *Engine) {
				if r != joins {
					for range 4 {
						op := sum("x", floats(float32(r)))
						if err := do(t, e, op); err != nil || !bytes.Equal(op.Out, floats(float32(3-joins))) {
							t.Errorf("rank %d: %v, %x", r, err, op.Out)
						}
					}
				}
				if err := do(t, e, &Op{Type: operation.Join, DType: tensor.Uint8, Name: JoinName, Prescale: 1,
					Postscale: 1}); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
			if repeated(t, engines, func(r int) *Op { return sum("x", floats(float32(r))) }, floats(3)) {
				t.Error("after the Join a collective has run")
			}
		})
	}
}
