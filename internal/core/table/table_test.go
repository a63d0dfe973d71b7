package table

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
)

func options(o Optimizer, dim int) Options {
	return Options{Name: "t", Dim: dim, Seed: 3, Init: Normal, Scale: 0.5, Optimizer: o, Rate: 0.1, Epsilon: 1e-8,
		InitialAccumulator: 0.25, Beta1: 0.9, Beta2: 0.999, Beta: 1, L1: 0.01, L2: 0.5}
}

// naive is a table as a map, by formulas that are written anew here.
type naive struct {
	o     *Options
	b     birth
	rows  map[int64]*naiveRow
	steps int
}

type naiveRow struct{ w, a, b []float32 }

func newNaive(o *Options) *naive { return &naive{o: o, b: newBirth(o), rows: map[int64]*naiveRow{}} }

func (n *naive) row(key int64) *naiveRow {
	r := n.rows[key]
	if r == nil {
		r = &naiveRow{make([]float32, n.o.Dim), make([]float32, n.o.Dim), make([]float32, n.o.Dim)}
		n.b.fill(key, r.w)
		for i := range r.a {
			if n.o.Optimizer == Adagrad || n.o.Optimizer == RowwiseAdagrad {
				r.a[i] = n.o.InitialAccumulator
			}
		}
		n.rows[key] = r
	}
	return r
}

// update applies sums, by key.
func (n *naive) update(sums map[int64][]float32, rate float32) {
	n.steps++
	p1, p2 := 1.0, 1.0
	for range n.steps {
		p1, p2 = p1*float64(n.o.Beta1), p2*float64(n.o.Beta2)
	}
	adam := float32(float64(rate) * math.Sqrt(1-p2) / (1 - p1))
	sqrt := func(x float32) float32 { return float32(math.Sqrt(float64(x))) }
	for key, g := range sums {
		r := n.row(key)
		mean := float32(0)
		for _, x := range g {
			y := x * x
			mean += y
		}
		mean /= float32(len(g))
		for i, x := range g {
			square := float32(x * x)
			switch n.o.Optimizer {
			case SGD:
				r.w[i] = r.w[i] - float32(rate*x)
			case Adagrad:
				r.a[i] += square
				r.w[i] = r.w[i] - float32(rate*x)/(sqrt(r.a[i])+n.o.Epsilon)
			case RowwiseAdagrad:
				r.a[i] += mean
				r.w[i] = r.w[i] - float32(float32(rate/(sqrt(r.a[i])+n.o.Epsilon))*x)
			case Adam:
				r.a[i] = float32(n.o.Beta1*r.a[i]) + float32((1-n.o.Beta1)*x)
				r.b[i] = float32(n.o.Beta2*r.b[i]) + float32((1-n.o.Beta2)*square)
				r.w[i] = r.w[i] - float32(adam*r.a[i])/(sqrt(r.b[i])+n.o.Epsilon)
			case FTRL:
				old := sqrt(r.b[i])
				r.b[i] += square
				sigma := (sqrt(r.b[i]) - old) / rate
				r.a[i] += x - float32(sigma*r.w[i])
				if z := r.a[i]; math.Abs(float64(z)) <= float64(n.o.L1) {
					r.w[i] = 0
				} else {
					l1 := float32(math.Copysign(float64(n.o.L1), float64(z)))
					r.w[i] = -(z - l1) / ((n.o.Beta+sqrt(r.b[i]))/rate + n.o.L2)
				}
			}
		}
	}
}

// TestAgainstAMap runs random pulls and updates of several members, and compares all bits.
func TestAgainstAMap(t *testing.T) {
	for _, optimizer := range optimizers {
		for _, dim := range []int{1, 2, 3, 16} {
			testAgainstAMap(t, optimizer, dim)
		}
	}
}

func testAgainstAMap(t *testing.T, optimizer Optimizer, dim int) {
	rng := rand.New(rand.NewPCG(1, uint64(dim)))
	o := options(optimizer, dim)
	table, want := New(o), newNaive(&o)
	defer table.Close()
	var u Update
	some := func() []int64 { // distinct keys
		seen, keys := map[int64]bool{}, []int64{}
		for range rng.IntN(400) {
			key := rng.Int64N(600) - 300
			if rng.IntN(4) == 0 {
				key = int64(rng.Uint64())
			}
			if !seen[key] {
				seen[key], keys = true, append(keys, key)
			}
		}
		return keys
	}
	for range 40 {
		keys := some()
		got := make([]float32, len(keys)*dim)
		if err := table.Pull(keys, got, true); err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			same(t, optimizer, key, got[i*dim:][:dim], want.row(key).w)
		}
		sums := map[int64][]float32{}
		u.Begin(table)
		for range rng.IntN(4) {
			keys := some()
			g := make([]float32, len(keys)*dim)
			for i := range g {
				g[i] = float32(rng.NormFloat64())
			}
			if err := u.Add(keys, g); err != nil {
				t.Fatal(err)
			}
			for i, key := range keys {
				if sums[key] == nil {
					sums[key] = append([]float32(nil), g[i*dim:][:dim]...)
					continue
				}
				for j := range dim {
					sums[key][j] += g[i*dim+j]
				}
			}
		}
		for done := false; !done; {
			var err error
			if done, err = u.Apply(0.1, 100); err != nil {
				t.Fatal(err)
			}
		}
		want.update(sums, 0.1)
	}
	if table.Len() != len(want.rows) {
		t.Errorf("%s: %d rows, want %d", optimizer, table.Len(), len(want.rows))
	}
	last, n := int64(0), 0
	slot := -1
	table.All(func(r *Row) bool {
		if s := slots.Of(slots.Hash(r.Key)); s < slot || s == slot && r.Key <= last {
			t.Errorf("key %d of slot %d comes after key %d of slot %d", r.Key, s, last, slot)
		} else {
			slot, last = s, r.Key
		}
		same(t, optimizer, r.Key, r.Weights, want.row(r.Key).w)
		n++
		return true
	})
	if n != len(want.rows) {
		t.Errorf("%s: the walk finds %d of %d rows", optimizer, n, len(want.rows))
	}
}

func same(t *testing.T, o Optimizer, key int64, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: weight %d of key %d is %v, want %v", o, i, key, got[i], want[i])
		}
	}
}

// TestToLookIsNotToTrain: a pull that does not train sees the rows that training would make, and makes none.
func TestToLookIsNotToTrain(t *testing.T) {
	table := New(options(SGD, 4))
	defer table.Close()
	keys := []int64{5, -5, 1 << 50}
	looked, trained := make([]float32, 12), make([]float32, 12)
	if err := table.Pull(keys, looked, false); err != nil || table.Len() != 0 {
		t.Fatal(err, table.Len())
	}
	for range 2 {
		table.BeginPull()
		if err := table.Pull(keys, trained, true); err != nil || table.Len() != 3 {
			t.Fatal(err, table.Len())
		}
	}
	same(t, SGD, 0, looked, trained)
	var u Update
	u.Begin(table)
	if _, err := u.Apply(1, 1); err != nil { // nobody has gradients
		t.Fatal(err)
	}
	for _, key := range keys {
		rows := table.Slot(slots.Of(slots.Hash(key)), nil)
		if len(rows) != 1 || rows[0].Key != key || rows[0].Pulls != 2 || rows[0].Idle != 1 {
			t.Errorf("%+v", rows)
		}
	}
}

func TestClosed(t *testing.T) {
	table := New(options(SGD, 1))
	out := []float32{0}
	if err := table.Pull([]int64{1}, out, true); err != nil {
		t.Fatal(err)
	}
	var u Update
	u.Begin(table)
	table.Close()
	table.Close()
	_, applied := u.Apply(1, 1)
	for _, err := range []error{table.Pull([]int64{1}, out, true), u.Add([]int64{1}, out), applied} {
		if err == nil || err.Error() != `table "t": the table is closed` {
			t.Error(err)
		}
	}
	if table.Len() != 0 || table.Bytes() != 0 {
		t.Errorf("it still has %d rows, %d bytes", table.Len(), table.Bytes())
	}
	table.All(func(*Row) bool { t.Error("it still has a row"); return true })
}

// TestWalkWhileInUse walks through a table that another goroutine trains; for the race detector, too.
func TestWalkWhileInUse(t *testing.T) {
	table := New(options(Adam, 8))
	defer table.Close()
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		var u Update
		keys, rows := make([]int64, 500), make([]float32, 500*8)
		for step := 0; ; step++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			for i := range keys {
				keys[i] = int64(step*100 + i)
			}
			err := table.Pull(keys, rows, true)
			u.Begin(table)
			if err == nil {
				err = u.Add(keys, rows)
			}
			if err == nil {
				_, err = u.Apply(0.1, len(keys))
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	seen := 0
	for seen < 20000 && len(ended) == 0 {
		before := seen
		last := make(map[int64]bool)
		table.All(func(r *Row) bool {
			if last[r.Key] {
				t.Errorf("one walk finds key %d twice", r.Key)
			}
			last[r.Key] = true
			seen++
			return seen < before+5000
		})
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
