package table

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// simple is a table with admission and eviction as maps, by rules that are written anew here. Its optimizer subtracts
// the gradient.
type simple struct {
	o     *Options
	b     birth
	rows  map[int64]*simpleRow
	waits map[int64]*simpleRow // candidates
	steps int
}

type simpleRow struct {
	w           float32
	pulls, last int
}

// pull returns what each of members' keys reads as, if they are pulled to train.
func (s *simple) pull(members [][]int64) (read [][]float32) {
	seen := map[int64]bool{}
	for _, keys := range members {
		for _, key := range keys {
			if seen[key] {
				continue
			}
			seen[key] = true
			r := s.rows[key]
			if r == nil {
				if r = s.waits[key]; r == nil {
					r = &simpleRow{}
				}
				if r.pulls+1 < int(s.o.Admit) {
					s.waits[key] = r
				} else {
					delete(s.waits, key)
					r.w = s.born(key)
					s.rows[key] = r
				}
			}
			r.pulls, r.last = r.pulls+1, s.steps
		}
	}
	for _, keys := range members {
		read = append(read, s.look(keys))
	}
	return read
}

// look returns what keys read as.
func (s *simple) look(keys []int64) (read []float32) {
	for _, key := range keys {
		switch r := s.rows[key]; {
		case r != nil:
			read = append(read, r.w)
		case s.o.Admit > 1:
			read = append(read, 0)
		default:
			read = append(read, s.born(key))
		}
	}
	return read
}

func (s *simple) born(key int64) float32 {
	w := []float32{0}
	s.b.fill(key, w)
	return w[0]
}

func (s *simple) most() int { return (int(s.o.Rows) + 4095) / 4096 }

// update adds one to the weight of each key, and evicts.
func (s *simple) update(keys []int64) {
	s.steps++
	for _, key := range keys {
		r := s.rows[key]
		if r == nil && s.o.Admit <= 1 {
			r = &simpleRow{w: s.born(key)}
			s.rows[key] = r
		}
		if r != nil {
			r.w, r.last = r.w+1, s.steps
		}
	}
	bySlot := map[int][]int64{}
	for key := range s.rows {
		slot := slots.Of(slots.Hash(key))
		bySlot[slot] = append(bySlot[slot], key)
	}
	waiting := map[int][]int64{}
	for key := range s.waits {
		slot := slots.Of(slots.Hash(key))
		waiting[slot] = append(waiting[slot], key)
	}
	for slot := range 4096 {
		turn := false
		if s.o.Idle > 0 {
			updates := min(max(1, int(s.o.Idle)/8), 1024)
			each := (4096 + updates - 1) / updates
			for i := range each {
				turn = turn || (s.steps*each+i)%4096 == slot
			}
		}
		keys := bySlot[slot]
		over := s.o.Rows > 0 && (len(keys) > s.most()+s.most()/8 || len(waiting[slot]) > 4*s.most())
		if !turn && !over {
			continue
		}
		s.evict(s.rows, keys, s.most())
		s.evict(s.waits, waiting[slot], 4*s.most())
	}
}

func (s *simple) evict(from map[int64]*simpleRow, keys []int64, most int) {
	keys = slices.DeleteFunc(keys, func(key int64) bool {
		r := from[key]
		old := s.o.Idle > 0 && s.steps-r.last > int(s.o.Idle) && (s.o.Keep == 0 || r.pulls < int(s.o.Keep))
		if old {
			delete(from, key)
		}
		return old
	})
	slices.SortFunc(keys, func(a, b int64) int {
		return cmp.Or(from[b].last-from[a].last, from[b].pulls-from[a].pulls, cmp.Compare(a, b))
	})
	for len(keys) > most && s.o.Rows > 0 {
		delete(from, keys[len(keys)-1])
		keys = keys[:len(keys)-1]
	}
}

// TestWhichKeysHaveRows runs random pulls and updates of several members on tables that admit and evict, and compares
// all with a table of maps.
func TestWhichKeysHaveRows(t *testing.T) {
	var keys []int64 // of few slots, so that these become full
	for key := int64(0); len(keys) < 700; key++ {
		if slots.Of(slots.Hash(key)) < 7 {
			keys = append(keys, key)
		}
	}
	for says, change := range map[string]func(o *Options){
		"admission":              func(o *Options) { o.Admit = 3 },
		"age":                    func(o *Options) { o.Idle = 5 },
		"admission and age":      func(o *Options) { o.Admit, o.Idle = 4, 7 },
		"age without the usual":  func(o *Options) { o.Idle, o.Keep = 3, 4 },
		"turns":                  func(o *Options) { o.Idle = 30 },
		"number":                 func(o *Options) { o.Rows = 16 * 4096 },
		"number and admission":   func(o *Options) { o.Rows, o.Admit = 20*4096-5, 2 },
		"all":                    func(o *Options) { o.Rows, o.Admit, o.Idle, o.Keep = 17*4096, 2, 20, 9 },
		"candidates without end": func(o *Options) { o.Rows, o.Admit = 16*4096, 1000 },
	} {
		t.Run(says, func(t *testing.T) { testWhichKeysHaveRows(t, keys, change) })
	}
}

func testWhichKeysHaveRows(t *testing.T, keys []int64, change func(o *Options)) {
	o := options(SGD, 1)
	change(&o)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	table := New(o)
	defer func() { table.Close() }()
	want := &simple{o: &o, b: newBirth(&o), rows: map[int64]*simpleRow{}, waits: map[int64]*simpleRow{}}
	some := func() []int64 {
		var some []int64
		for range rng.IntN(150) { // low ones come more often
			some = append(some, keys[int(float64(len(keys))*rng.Float64()*rng.Float64()*rng.Float64())])
		}
		slices.Sort(some)
		some = slices.Compact(some)
		rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		return some
	}
	var u Update
	for step := range 150 {
		members := make([][]int64, 1+rng.IntN(3))
		for m := range members {
			members[m] = some()
		}
		table.BeginPull()
		for m, read := range want.pull(members) {
			checkReads(t, table, step, members[m], read, true)
		}
		looks := some()
		checkReads(t, table, step, looks, want.look(looks), false)
		if rng.IntN(8) == 0 { // what a save and a load make of it goes on as it would have
			saved := table
			table = moved(t, saved)
			saved.Close()
		}
		u.Begin(table)
		pushed := map[int64]bool{}
		for range 2 {
			keys := some()
			g := make([]float32, len(keys))
			for i, key := range keys {
				if !pushed[key] {
					g[i] = -1
				}
				pushed[key] = true
			}
			if err := u.Add(keys, g); err != nil {
				t.Fatal(err)
			}
		}
		for done := false; !done; {
			var err error
			if done, err = u.Apply(1, 20); err != nil {
				t.Fatal(err)
			}
		}
		want.update(slices.Collect(maps.Keys(pushed)))
		n := 0
		table.All(func(r *Row) bool {
			n++
			if w := want.rows[r.Key]; w == nil || w.w != r.Weights[0] || w.pulls != int(r.Pulls) ||
				want.steps-w.last != int(r.Idle) {
				t.Errorf("step %d: row %+v, want %+v at update %d", step, r, w, want.steps)
			}
			return !t.Failed()
		})
		waits := 0
		if table.candidates != nil {
			for slot := range table.candidates {
				for key, c := range table.candidates[slot] {
					waits++
					if w := want.waits[key]; w == nil || w.pulls != int(c.pulls) || w.last != int(c.last) {
						t.Errorf("step %d: candidate %d is %+v, want %+v", step, key, c, w)
					}
				}
			}
		}
		if n != len(want.rows) || table.Len() != n || waits != len(want.waits) {
			t.Errorf("step %d: %d rows, %d candidates; want %d and %d", step, n, waits, len(want.rows), len(want.waits))
		}
		if t.Failed() {
			return
		}
	}
}

func checkReads(t *testing.T, table *Table, step int, keys []int64, want []float32, train bool) {
	t.Helper()
	out := make([]float32, len(keys))
	if err := table.Pull(keys, out, train); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out, want) {
		t.Errorf("step %d: %v read %v, want %v", step, keys, out, want)
	}
}

// TestEvictionAfterALoad: a table that takes more rows than its bound loses them at its next update. One that was saved
// between a pull and an update loses the rows that the saved one loses.
func TestEvictionAfterALoad(t *testing.T) {
	o := options(SGD, 1)
	table := New(o)
	defer table.Close()
	keys := make([]int64, 200_000)
	for i := range keys {
		keys[i] = int64(i)
	}
	if err := table.Pull(keys, make([]float32, len(keys)), true); err != nil {
		t.Fatal(err)
	}
	nothing := func(table *Table) {
		t.Helper()
		var u Update
		u.Begin(table)
		if done, err := u.Apply(1, math.MaxInt); err != nil || !done {
			t.Fatal(done, err)
		}
	}
	o.Rows = leastShare * slots.Count
	bounded := movedTo(t, table, o)
	if bounded.Len() != len(keys) {
		t.Errorf("%d rows", bounded.Len())
	}
	nothing(bounded)
	if n := bounded.Len(); n > int(o.Rows)*9/8 || n < int(o.Rows)*3/4 {
		t.Errorf("%d rows after an update", n)
	}

	// A slot with 65 candidates, one of which becomes the 18th row before the update.
	o.Admit = 2
	one := New(o)
	defer one.Close()
	var some []int64
	for key := int64(0); len(some) < 82; key++ {
		if slots.Of(slots.Hash(key)) == 7 {
			some = append(some, key)
		}
	}
	for _, keys := range [][]int64{some[:17], some[:17], some[17:82], some[17:18]} {
		one.BeginPull()
		if err := one.Pull(keys, make([]float32, len(keys)), true); err != nil {
			t.Fatal(err)
		}
	}
	other := moved(t, one)
	nothing(one)
	nothing(other)
	compare(t, other, one)
	if one.Len() != 18 || len(one.candidates[7]) != 64 {
		t.Errorf("%d rows and %d candidates", one.Len(), len(one.candidates[7]))
	}
}

// TestMaxRows: a table with a bound has about as many rows, whatever the number of keys, and its memory stays.
func TestMaxRows(t *testing.T) {
	o := options(SGD, 4)
	o.Rows = 100_000
	table := New(o)
	defer table.Close()
	keys, rows := make([]int64, 5000), make([]float32, 4*5000)
	var u Update
	reserved := int64(0)
	for step := range 200 {
		for i := range keys {
			keys[i] = int64(step*len(keys) + i)
		}
		table.BeginPull()
		if err := table.Pull(keys, rows, true); err != nil {
			t.Fatal(err)
		}
		u.Begin(table)
		if err := u.Add(keys, rows); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Apply(0.1, 1<<30); err != nil {
			t.Fatal(err)
		}
		if n := table.Len(); n > int(o.Rows)*9/8 {
			t.Fatalf("step %d: %d rows", step, n)
		}
		if step == 100 {
			reserved = table.Bytes()
		}
	}
	if n := table.Len(); n < int(o.Rows)*3/4 || table.Bytes() > reserved {
		t.Errorf("%d rows in %d bytes, which were %d", n, table.Bytes(), reserved)
	}
	_ = table.Pull(keys, rows, false) // the last ones are there
	for i, key := range keys {
		w := make([]float32, 4)
		table.birth.fill(key, w)
		if slices.Equal(w, rows[4*i:][:4]) {
			t.Fatalf("key %d of the last step has been evicted", key)
		}
	}
}

func TestWrongLimits(t *testing.T) {
	for says, change := range map[string]func(o *Options){
		"max_rows is 1000; it must be 65536 or more, or 0": func(o *Options) { o.Rows = 1000 },
		"max_rows is -1;": func(o *Options) { o.Rows = -1 },
		"evict_keep is 3, but rows are not evicted": func(o *Options) { o.Keep = 3 },
	} {
		o := options(SGD, 1)
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
