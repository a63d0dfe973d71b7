package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
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

// A broadcast and an allgather make one journey, too, whoever is the root, and whatever the ranks contribute. So does a
// barrier, which has no data.
func TestBroadcastsAllgathersAndBarriersMakeOneJourney(t *testing.T) {
	type result struct {
		bytes []byte
		shape tensor.Shape
	}
	broadcast := func(root int, apart bool) func(r int) *Op {
		return func(r int) *Op {
			op := &Op{Type: operation.Broadcast, Name: "b", DType: tensor.Float32, Shape: tensor.Shape{2}, Root: root,
				In: floats(float32(r), -float32(r)), Prescale: 1, Postscale: 1}
			if op.Out = op.In; apart {
				op.Out = make([]byte, 8)
			}
			return op
		}
	}
	gather := func(rows ...int) func(r int) *Op {
		return func(r int) *Op {
			op := &Op{Type: operation.Allgather, Name: "g", DType: tensor.Float32, Shape: tensor.Shape{int64(rows[r]),
				1}, In: floats(rowsOf(r, rows[r])...), Prescale: 1, Postscale: 1}
			op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
			return op
		}
	}
	same := func(r int) *Op { return &Op{Type: operation.Barrier, DType: tensor.Uint8, Name: "barrier.noname"} }
	for name, c := range map[string]struct {
		make  func(r int) *Op
		want  result
		stays bool
		ahead int64 // operations in a round whose result comes with the log
	}{
		"broadcast from 0": {make: broadcast(0, false), want: result{floats(0, float32(math.Copysign(0, -1))), nil},
			ahead: 1},
		"broadcast from 1":       {make: broadcast(1, false), want: result{floats(1, -1), nil}, ahead: 1},
		"broadcast from 2":       {make: broadcast(2, false), want: result{floats(2, -2), nil}, ahead: 1},
		"broadcast out of place": {make: broadcast(2, true), want: result{floats(2, -2), nil}, ahead: 1},
		"allgather": {make: gather(1, 1, 1), want: result{floats(0, 10, 20), tensor.Shape{3, 1}},
			ahead: 1},
		"uneven allgather": {make: gather(2, 0, 3), want: result{floats(0, 1, 20, 21, 22), tensor.Shape{5, 1}},
			ahead: 1},
		"empty allgather": {make: gather(0, 0, 0), want: result{nil, tensor.Shape{0, 1}}, stays: true},
		"long allgather":  {make: gather(700, 700, 1), stays: true},
		"barrier":         {make: same},
	} {
		t.Run(name, func(t *testing.T) {
			engines := newHosts(t, twoHosts, nil)
			var before uint64
			var ahead [3]int64
			for round := range 6 {
				if round == 3 { // from the third use on
					before = moves(engines)
					for r, e := range engines {
						ahead[r] = e.Counters().Ahead.Load()
					}
				}
				each(engines, func(r int, e *Engine) {
					op := c.make(r)
					en, err := e.Enqueue(op)
					if err == nil {
						defer en.Release()
						e.Wait(en, limit)
						err = en.Err()
					}
					if err != nil {
						t.Errorf("round %d, rank %d: %v", round, r, err)
						return
					}
					out, shape := en.Output()
					if c.want.bytes != nil && !bytes.Equal(out, c.want.bytes) {
						t.Errorf("round %d, rank %d: %x, want %x", round, r, out, c.want.bytes)
					}
					if c.want.shape != nil && !shape.Equal(c.want.shape) {
						t.Errorf("round %d, rank %d: shape %v", round, r, shape)
					}
				})
			}
			if moved := moves(engines) != before; moved != c.stays {
				t.Errorf("a collective has run: %v", moved)
			}
			for r, e := range engines {
				if n := e.Counters().Ahead.Load() - ahead[r]; n != 3*c.ahead {
					t.Errorf("rank %d: %d results have come with the log", r, n)
				}
			}
		})
	}
}

// rowsOf are what a rank contributes to an allgather.
func rowsOf(rank, n int) (v []float32) {
	for i := range n {
		v = append(v, float32(10*rank+i))
	}
	return v
}

// An allgather for whose result there is no memory on one rank fails there alone, as it does without data ahead.
func TestNoMemoryForAGatheredResult(t *testing.T) {
	engines := newHosts(t, twoHosts, nil)
	for round := range 4 {
		each(engines, func(r int, e *Engine) {
			op := &Op{Type: operation.Allgather, Name: "g", DType: tensor.Float32, Shape: tensor.Shape{1},
				In: floats(float32(r)), Prescale: 1, Postscale: 1}
			op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) {
				if r == 1 {
					return nil, errors.New("none left")
				}
				return make([]byte, n), nil
			}
			en, err := e.Enqueue(op)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			defer en.Release()
			if e.Wait(en, limit); (en.Err() != nil) != (r == 1) {
				t.Errorf("round %d, rank %d: %v", round, r, en.Err())
			}
			if out, _ := en.Output(); r != 1 && !bytes.Equal(out, floats(0, 1, 2)) {
				t.Errorf("round %d, rank %d: %x", round, r, out)
			}
		})
	}
}

// A record of the log changes how much travels ahead, on all ranks, and the figures say so.
func TestTheTunerSetsTheBound(t *testing.T) {
	engines := newHosts(t, twoHosts, func(o *Options) {
		o.EarlyBytes = 8
		o.Tune = &TuneOptions{Steps: 1 << 20, Points: 1}
	})
	tuned := engines[0].world.settings
	for _, bound := range []int{8, 16, 0, 4096, 4} {
		tuned.early = bound
		next := tuned
		engines[0].tuner.next.Store(&next)
		each(engines, func(r int, e *Engine) { // the record of the log comes with an operation
			for range 2 {
				if err := do(t, e, sum("any", floats(1))); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
		for r, e := range engines {
			if got := e.Figures().Early.Bytes; got != uint64(bound) {
				t.Errorf("rank %d: the figures say %d, want %d", r, got, bound)
			}
		}
		for _, bytes := range []int{4, 8, 12, 16, 4096} {
			op := func(int) *Op { return sum(fmt.Sprint("x", bytes), make([]byte, bytes)) }
			if moved := repeated(t, engines, op, make([]byte, bytes)); moved != (bytes > bound) {
				t.Errorf("bound %d, %d bytes: a collective has run: %v", bound, bytes, moved)
			}
		}
	}
}

// One rank that leaves its data behind makes all others move theirs as usual.
func TestOneStaysBehind(t *testing.T) {
	for behind := range 3 {
		engines := newHosts(t, twoHosts, nil)
		engines[behind].world.settings.early = 0
		engines[behind].world.boundEarly()
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

// watched counts how often the driver of a rank looks.
type watched struct {
	transport.Network
	looks atomic.Int64
}

func (n *watched) Poll()              { n.looks.Add(1) }
func (n *watched) Attend(wake func()) { n.Network.(transport.Attended).Attend(wake) }

// Ranks whose operations have ended do not look for more, neither members nor leaders: an idle job uses no processor
// time.
func TestIdleRanksDoNotLook(t *testing.T) {
	for _, hosts := range [][][]int{{{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}}} {
		var networks []*watched
		engines := make([]*Engine, 4)
		for r, n := range inproc.NewWorld(4, inproc.Options{Hosts: hosts, Cards: 64, ChunkBytes: 4096, Early: 4096,
			Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }}) {
			networks = append(networks, &watched{Network: n})
			e, err := New(networks[r], Options{Rank: r, Size: 4, FusionThreshold: 1 << 20, CacheCapacity: 64,
				EarlyBytes: 4096, Spin: true})
			if err != nil {
				t.Fatal(err)
			}
			engines[r] = e
		}
		repeated(t, engines, func(r int) *Op { return sum("x", floats(float32(r))) }, floats(6))
		repeated(t, engines, func(r int) *Op { return sum("long", make([]byte, 8192)) }, make([]byte, 8192))
		looks := func() (n int64) {
			for _, w := range networks {
				n += w.looks.Load()
			}
			return n
		}
		deadline := time.Now().Add(limit)
		for before := int64(-1); before != looks(); {
			if before = looks(); time.Now().After(deadline) {
				t.Fatalf("on hosts %v: idle ranks have looked %d times, and go on", hosts, before)
			}
			time.Sleep(200 * time.Millisecond)
		}
		each(engines, func(_ int, e *Engine) { e.Shutdown(limit) })
	}
}
