package engine

import (
	"flag"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

var sparsePrograms = flag.Int("sparse-programs", 60, "how many random programs TestSparseTablesAgainstOneProcess runs")

func tableOptions(name string, dim int, o table.Optimizer) table.Options {
	return table.Options{Name: name, Dim: dim, Seed: 1, Init: table.Normal, Scale: 1, Optimizer: o, Rate: 0.5,
		Epsilon: 1e-8, Beta1: 0.9, Beta2: 0.99, Beta: 1, L1: 0.1, L2: 1}
}

// sparseStep is what one rank does to one table in one step.
type sparseStep struct {
	keys      []int64
	gradients []float32 // of keys
	looks     bool
}

// sparseProgram is a random program: which tables the ranks of a world have, and what each does in each step. A rank
// that has fewer steps joins early.
type sparseProgram struct {
	tables []table.Options
	steps  [][][]sparseStep // by rank, step and table
	fused  bool             // the tables of a step are one group
}

func newSparseProgram(rng *rand.Rand, size, most int) *sparseProgram {
	p := &sparseProgram{fused: rng.Intn(2) == 0}
	all := []table.Optimizer{table.SGD, table.Adagrad, table.RowwiseAdagrad, table.Adam, table.FTRL}
	for i := range 1 + rng.Intn(3) {
		o := tableOptions(fmt.Sprintf("t%d", i), 1+rng.Intn(5), all[rng.Intn(len(all))])
		if rng.Intn(2) == 0 {
			o.Admit, o.Idle = uint32(rng.Intn(4)), uint32(rng.Intn(3))
			if o.Idle > 0 {
				o.Keep = uint32(rng.Intn(4))
			}
			o.Rows = 16 * slots.Count * int64(rng.Intn(2))
		}
		p.tables = append(p.tables, o)
	}
	keys := 1 + rng.Intn(2000) // few keys: the ranks have many in common
	steps := make([][][]sparseStep, size)
	for r := range steps {
		for range 1 + rng.Intn(most) {
			var step []sparseStep
			for _, o := range p.tables {
				s := sparseStep{looks: rng.Intn(5) == 0}
				for range rng.Intn(100) * rng.Intn(3) {
					s.keys = append(s.keys, int64(rng.Intn(keys)-keys/2)<<rng.Intn(2))
				}
				for range len(s.keys) * o.Dim {
					s.gradients = append(s.gradients, float32(rng.NormFloat64()))
				}
				step = append(step, s)
			}
			steps[r] = append(steps[r], step)
		}
	}
	p.steps = steps
	return p
}

// retable gives p other tables.
func (p *sparseProgram) retable(rng *rand.Rand, tables []table.Options) {
	p.tables = slices.Clone(tables)
	for _, steps := range p.steps {
		for i, step := range steps {
			for len(step) < len(tables) {
				step = append(step, sparseStep{})
			}
			step = step[:len(tables)]
			for j := range step {
				step[j].gradients = nil
				for range len(step[j].keys) * tables[j].Dim {
					step[j].gradients = append(step[j].gradients, float32(rng.NormFloat64()))
				}
			}
			steps[i] = step
		}
	}
}

// distinct adds the gradients of equal keys in their order, and returns the distinct keys in the order of l.
func (s *sparseStep) distinct(l *table.Lookup, dim int) []float32 {
	sums := make([]float32, len(l.Keys)*dim)
	fresh := make([]bool, len(l.Keys))
	for i, at := range l.Index {
		sum, g := sums[int(at)*dim:][:dim], s.gradients[i*dim:][:dim]
		for j := range g {
			if fresh[at] {
				sum[j] += g[j]
			} else {
				sum[j] = g[j]
			}
		}
		fresh[at] = true
	}
	return sums
}

// reference runs p in one process, with one table for all ranks, and returns what each rank pulls and the rows at the
// end, by table and key.
func (p *sparseProgram) reference(t *testing.T) (pulled [][][]float32, rows []map[int64]*table.Row) {
	tables := make([]*table.Table, len(p.tables))
	for i, o := range p.tables {
		tables[i] = table.New(o)
		defer tables[i].Close()
	}
	pulled = p.alone(t, tables)
	for i := range tables {
		rows = append(rows, map[int64]*table.Row{})
		tables[i].All(func(r *table.Row) bool {
			row := *r
			rows[i][r.Key] = &row
			return true
		})
	}
	return pulled, rows
}

// alone runs p in one process, with one of tables for all ranks each, and returns what each rank pulls.
func (p *sparseProgram) alone(t *testing.T, tables []*table.Table) (pulled [][][]float32) {
	one := slots.Assign(1)
	pulled = make([][][]float32, len(p.steps))
	for step := 0; slices.ContainsFunc(p.steps, func(s [][]sparseStep) bool { return step < len(s) }); step++ {
		for i, o := range p.tables {
			var u table.Update
			lookups := make([]table.Lookup, len(p.steps))
			tables[i].BeginPull()
			for r, steps := range p.steps {
				if step >= len(steps) {
					continue
				}
				l, s := &lookups[r], &steps[step][i]
				if err := l.Fill(&o, one, s.keys, table.Padding{}); err != nil {
					t.Fatal(err)
				}
				out := make([]float32, len(l.Keys)*o.Dim)
				if err := tables[i].Pull(l.Keys, out, !s.looks); err != nil {
					t.Fatal(err)
				}
				var all []float32
				for _, at := range l.Index {
					all = append(all, out[int(at)*o.Dim:][:o.Dim]...)
				}
				pulled[r] = append(pulled[r], all)
			}
			u.Begin(tables[i])
			for r, steps := range p.steps {
				if step < len(steps) {
					if err := u.Add(lookups[r].Keys, steps[step][i].distinct(&lookups[r], o.Dim)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if done, err := u.Apply(rateOf(step), 1<<30); !done || err != nil {
				t.Fatal(done, err)
			}
		}
	}
	return pulled
}

// rateOf is the learning rate of a step: a schedule.
func rateOf(step int) float32 { return 0.5 / float32(1+step) }

// run does the part of member r of a process set, and compares what it pulls.
func (p *sparseProgram) run(t *testing.T, e *Engine, set, r int, pulled [][]float32) []*Table {
	tables := make([]*Table, len(p.tables))
	for i, o := range p.tables {
		var err *Error
		if tables[i], err = e.NewTable(set, o); err != nil {
			t.Errorf("rank %d: %v", r, err)
			return nil
		}
	}
	if !p.runOn(t, e, r, pulled, tables) {
		return nil
	}
	return tables
}

// runOn is run with tables that are there.
func (p *sparseProgram) runOn(t *testing.T, e *Engine, r int, pulled [][]float32, tables []*Table) bool {
	lookups := make([]table.Lookup, len(p.tables))
	for step, parts := range p.steps[r] {
		var pulls, pushes []Op
		outs := make([][]float32, len(parts))
		for i := range parts {
			l, dim := &lookups[i], p.tables[i].Dim
			if err := tables[i].Fill(l, parts[i].keys, table.Padding{}); err != nil {
				t.Error(err)
				return false
			}
			outs[i] = make([]float32, len(l.Keys)*dim)
			pulls = append(pulls, tables[i].Pull(l, outs[i], parts[i].looks))
			pushes = append(pushes, tables[i].Push(l, parts[i].distinct(l, dim), rateOf(step)))
		}
		if !p.submit(t, e, r, step, "pulls", pulls) {
			return false
		}
		for i := range parts {
			dim, want := p.tables[i].Dim, pulled[step*len(parts)+i]
			for j, at := range lookups[i].Index {
				for k := range dim {
					if got := outs[i][int(at)*dim+k]; math.Float32bits(got) != math.Float32bits(want[j*dim+k]) {
						t.Errorf("rank %d, step %d, table %d (%s): key %d has %v, want %v", r, step, i,
							p.tables[i].Optimizer, parts[i].keys[j], got, want[j*dim+k])
						return false
					}
				}
			}
		}
		if !p.submit(t, e, r, step, "pushes", pushes) {
			return false
		}
	}
	return true
}

// submit runs the operations of a step.
func (p *sparseProgram) submit(t *testing.T, e *Engine, r, step int, name string, ops []Op) bool {
	var all []*Entry
	if p.fused {
		entries, err := e.EnqueueGroup(name, ops)
		if err != nil {
			t.Errorf("rank %d, step %d: %v", r, step, err)
			return false
		}
		all = entries
	} else {
		for i := range ops {
			en, err := e.Enqueue(&ops[i])
			if err != nil {
				t.Errorf("rank %d, step %d: %v", r, step, err)
				return false
			}
			all = append(all, en)
		}
	}
	ok := true
	for _, en := range all {
		if err := finish(t, e, en); err != nil {
			t.Errorf("rank %d, step %d: %v", r, step, err)
			ok = false
		}
		en.Release()
	}
	return ok
}

// TestSparseTablesAgainstOneProcess runs random programs of several tables, on one and on several hosts, on worlds and
// on process sets of some of their ranks, with ranks that join early. All bits are those of one process that adds the
// ranks' gradients in their order.
func TestSparseTablesAgainstOneProcess(t *testing.T) {
	programs := *sparsePrograms
	if testing.Short() {
		programs = min(programs, 12)
	}
	for i := range programs {
		seed := int64(i)
		if i >= programs/2 {
			seed = time.Now().UnixNano() + int64(i)
		}
		testSparseProgram(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func testSparseProgram(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	size := 1 + rng.Intn(5)
	members := rng.Perm(size) // of the set with the tables
	set := rng.Intn(2) == 0
	if set {
		members = members[:1+rng.Intn(size)]
	}
	slices.Sort(members)
	p := newSparseProgram(rng, len(members), 6)
	pulled, rows := p.reference(t)
	change := func(o *Options) {
		if rng.Intn(3) == 0 {
			o.FusionThreshold = 0
		}
		if rng.Intn(3) == 0 {
			o.CacheCapacity = 0
		}
	}
	var engines []*Engine
	switch carrier := rng.Intn(4); {
	case carrier < 2 && size > 1:
		engines = makeHosts(t, randomHosts(rng, size), 4096, change)
	default:
		engines = makeWorld(t, size, carrier == 3, change)
	}
	tables := make([][]*Table, len(members))
	each(engines, func(r int, e *Engine) {
		id := 0
		if set {
			id, _ = e.AddSet(members)
		}
		member := slices.Index(members, r)
		if member < 0 {
			return
		}
		tables[member] = p.run(t, e, id, member, pulled[member])
		en, err := e.Enqueue(&Op{Type: operation.Join, Set: id, Prescale: 1, Postscale: 1})
		if err == nil {
			err = finish(t, e, en)
			en.Release()
		}
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	})
	owners := slots.Assign(len(members))
	for i := range rows {
		n := 0
		for r := range tables {
			if t.Failed() {
				break
			}
			tables[r][i].All(func(row *table.Row) bool {
				n++
				want := rows[i][row.Key]
				if owner := owners.OwnerOf(slots.Hash(row.Key)); owner != r {
					t.Errorf("member %d has key %d of member %d", r, row.Key, owner)
				}
				same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
				if want == nil || !slices.EqualFunc(row.Weights, want.Weights, same) ||
					!slices.EqualFunc(row.State, want.State, same) || row.Pulls != want.Pulls || row.Idle != want.Idle {
					t.Errorf("table %d: %+v, want %+v", i, row, want)
				}
				return !t.Failed()
			})
		}
		if n != len(rows[i]) && !t.Failed() {
			t.Errorf("table %d has %d rows, want %d", i, n, len(rows[i]))
		}
	}
	each(engines, func(r int, e *Engine) { e.Shutdown(limit) })
}

// randomHosts divides ranks among hosts.
func randomHosts(rng *rand.Rand, size int) [][]int {
	hosts := make([][]int, 1+rng.Intn(size))
	for i, r := range rng.Perm(size) {
		h := rng.Intn(len(hosts))
		if i < len(hosts) {
			h = i // none is empty
		}
		hosts[h] = append(hosts[h], r)
	}
	for _, ranks := range hosts {
		slices.Sort(ranks)
	}
	slices.SortFunc(hosts, slices.Compare[[]int])
	return hosts
}

// TestTablesOfOtherKinds: ranks whose tables differ, or of which one refuses its own, get an error that names both, and
// no table.
func TestTablesOfOtherKinds(t *testing.T) {
	inWorlds(t, []int{3}, func(t *testing.T, engines []*Engine) {
		for says, change := range map[string]func(o *table.Options){
			`table "t": Mismatched dim: rank 0 has 4, rank 1 has 8.`:                   func(o *table.Options) { o.Dim = 8 },
			`table "t": Mismatched optimizer: rank 0 has adagrad, rank 1 has adam.`:    func(o *table.Options) { o.Optimizer = table.Adam },
			`table "t": Mismatched seed: rank 0 has 1, rank 1 has 5.`:                  func(o *table.Options) { o.Seed = 5 },
			`table "t": Mismatched lr: rank 0 has 0.5, rank 1 has 0.25.`:               func(o *table.Options) { o.Rate = 0.25 },
			`table "t": dim is -4; 1 to 65536 are possible.`:                           func(o *table.Options) { o.Dim = -4 },
			`table "t": scale is NaN; it must be a number from 0 on.`:                  func(o *table.Options) { o.Scale = float32(math.NaN()) },
			`table "t": num_embeddings is -1; it must be positive, or 0 for keys of a`: func(o *table.Options) { o.Keys = -1 },
		} {
			each(engines, func(r int, e *Engine) {
				o := tableOptions("t", 4, table.Adagrad)
				if r == 1 {
					change(&o)
				}
				if _, err := e.NewTable(0, o); err == nil || !strings.Contains(err.Reason, says) {
					t.Errorf("rank %d: %v, want %q", r, err, says)
				}
			})
		}
		each(engines, func(r int, e *Engine) {
			if _, err := e.NewTable(0, tableOptions("t", 4, table.Adagrad)); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if _, err := e.NewTable(0, tableOptions("t", 4, table.Adagrad)); err == nil ||
				!strings.Contains(err.Reason, "has a table of this name already") {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	})
}

// TestRefusedPulls: if one rank cannot name its keys, or has another learning rate, all ranks get an error that says
// so, and the next operation works.
func TestRefusedPulls(t *testing.T) {
	inWorlds(t, []int{1, 3}, func(t *testing.T, engines []*Engine) {
		last := len(engines) - 1
		each(engines, func(r int, e *Engine) {
			o := tableOptions("t", 2, table.SGD)
			o.Keys = 10
			tb, err := e.NewTable(0, o)
			if err != nil {
				t.Error(err)
				return
			}
			var l table.Lookup
			fill := func(keys ...int64) {
				if err := tb.Fill(&l, keys, table.Padding{}); err != nil {
					t.Error(err)
				}
			}
			try := func(op Op, says string) {
				t.Helper()
				err := do(t, e, &op)
				if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Reason, says) {
					t.Errorf("rank %d: %v, want %q", r, err, says)
				}
			}
			fill(1, 2)
			out := make([]float32, 4)
			op := tb.Pull(&l, out, false)
			if r == last {
				if err := tb.Fill(&l, []int64{1, 11}, table.Padding{}); err != nil {
					op.Refused = err.Error()
				}
			}
			try(op, "key 11 at position 1 is not one of 0 to 9")
			fill(1, 2)
			op = tb.Pull(&l, out[:3], false)
			if r != last {
				op = tb.Pull(&l, out, false)
			}
			try(op, "12 bytes of output for 2 keys, which need 16")
			op = tb.Pull(&l, out, false)
			if r == last {
				op.Root = 5
			}
			try(op, "the process set has no table of number 5")
			rate := float32(0.5)
			if r == last {
				rate = 0.25
			}
			if last > 0 {
				try(tb.Push(&l, out, rate), "Mismatched learning rates: rank 0 has 0.5, rank 2 has 0.25.")
			}
			before := slices.Clone(out)
			try(tb.Pull(&l, out, false), "")
			if last > 0 && !slices.Equal(before, []float32{0, 0, 0, 0}) {
				t.Errorf("a refused pull has written %v", before)
			}
			g := []float32{1, 0, 0, 1}
			try(tb.Push(&l, g, 0.5), "")
			was := slices.Clone(out)
			try(tb.Pull(&l, out, true), "")
			step := 0.5 * float32(len(engines))
			if out[0] != was[0]-step || out[1] != was[1] || out[3] != was[3]-step {
				t.Errorf("rank %d: a step of %v leads from %v to %v", r, step, was, out)
			}
		})
	})
}

// TestNaNsOfPushesAreNamedWithTheirKeys: the rank that contributes one says which key it is of.
func TestNaNsOfPushesAreNamedWithTheirKeys(t *testing.T) {
	engines := newWorld(t, 2, true, func(o *Options) { o.NaNCheck = operation.NaNAbort })
	each(engines, func(r int, e *Engine) {
		tb, err := e.NewTable(0, tableOptions("t", 3, table.SGD))
		if err != nil {
			t.Error(err)
			return
		}
		var l table.Lookup
		if err := tb.Fill(&l, []int64{5, 123456, 7}, table.Padding{}); err != nil {
			t.Error(err)
			return
		}
		g := make([]float32, 9)
		at := slices.Index(l.Keys, 123456)
		if r == 1 {
			g[3*at+2] = float32(math.NaN())
		}
		op := tb.Push(&l, g, 0.1)
		says := fmt.Sprintf(`rank 1 contributes a NaN to push "push.t": at index %d of 9 (float32), of key 123456; `+
			"NaNs: 1, infinities: 0", 3*at+2)
		if err := do(t, e, &op); err == nil || !strings.Contains(err.Reason, says) {
			t.Errorf("rank %d: %v, want %q", r, err, says)
		}
	})
}

// TestNaNsOfRowsAreNamedWithTableAndKey: the rank that pulls a row which training has broken says which one it is.
func TestNaNsOfRowsAreNamedWithTableAndKey(t *testing.T) {
	for _, size := range []int{1, 2} {
		engines := newWorld(t, size, true, func(o *Options) { o.NaNCheck = operation.NaNAbort })
		each(engines, func(r int, e *Engine) {
			tb, err := e.NewTable(0, tableOptions("users", 3, table.SGD))
			if err != nil {
				t.Error(err)
				return
			}
			var l table.Lookup
			if err := tb.Fill(&l, []int64{5, 123456, 7}, table.Padding{}); err != nil {
				t.Error(err)
				return
			}
			g, at := make([]float32, 9), slices.Index(l.Keys, 123456)
			if r == 0 {
				g[3*at+2] = 3e38
			}
			for _, op := range []Op{tb.Pull(&l, make([]float32, 9), false), tb.Push(&l, g, 3e38)} {
				if err := do(t, e, &op); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			op := tb.Pull(&l, make([]float32, 9), false)
			says := `pulls a row with an infinity of table "users": that of key 123456, at number 2 of 3; rows with NaNs ` +
				"or infinities: 1 of 3 (GOROVOD_NAN_CHECK=abort)"
			if err := do(t, e, &op); err == nil || !strings.Contains(err.Reason, says) {
				t.Errorf("rank %d: %v, want %q", r, err, says)
			}
		})
	}
}
