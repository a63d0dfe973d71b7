package engine

import (
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/table"
)

// TestSavedTablesAgainstOneProcess runs random programs in parts, each on another number of ranks, which save their
// tables for the next part. All bits are those of one process with one table for all.
func TestSavedTablesAgainstOneProcess(t *testing.T) {
	programs := max(*sparsePrograms/3, 2)
	if testing.Short() {
		programs = min(programs, 5)
	}
	for i := range programs {
		seed := int64(i)
		if i >= programs/2 {
			seed = time.Now().UnixNano() + int64(i)
		}
		testSavedProgram(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func testSavedProgram(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	dir := t.TempDir()
	var tables []table.Options
	var one []*table.Table
	for part := range 2 + rng.Intn(2) {
		size := 1 + rng.Intn(5)
		p := newSparseProgram(rng, size, 3)
		if part == 0 {
			tables = p.tables
			for _, o := range tables {
				one = append(one, table.New(o))
				defer one[len(one)-1].Close()
			}
		}
		p.retable(rng, tables)
		for i := range p.tables { // the rate may be another one
			p.tables[i].Rate = rng.Float32() + 0.1
		}
		pulled := p.alone(t, one)
		members := rng.Perm(size + rng.Intn(2))[:size] // of a process set, if there are more ranks
		slices.Sort(members)
		more := members[size-1] >= size
		engines := makeWorld(t, size+map[bool]int{true: 1}[more], rng.Intn(2) == 0, func(*Options) {})
		each(engines, func(rank int, e *Engine) {
			set := 0
			if more {
				set, _ = e.AddSet(members)
			}
			r := slices.Index(members, rank)
			if r < 0 {
				return
			}
			loaded := make([]*Table, len(tables))
			for i, o := range p.tables {
				var err *Error
				if loaded[i], err = e.NewTable(set, o); err == nil && part > 0 {
					if len(p.steps[r])%2 == 0 { // all rows go away, also those that are there
						_ = loaded[i].Table.Pull([]int64{1, 2, 3}, make([]float32, 3*o.Dim), true)
					}
					err = loaded[i].Load(filepath.Join(dir, o.Name))
				}
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					return
				}
			}
			if !p.runOn(t, e, r, pulled[r], loaded) {
				return
			}
			en, err := e.Enqueue(&Op{Type: operation.Join, Set: set, Prescale: 1, Postscale: 1})
			if err == nil {
				err = finish(t, e, en)
				en.Release()
			}
			for i := range loaded {
				if err == nil {
					err = loaded[i].Save(filepath.Join(dir, p.tables[i].Name))
				}
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		each(engines, func(_ int, e *Engine) { e.Shutdown(limit) }) // also of ranks outside of the set
		if t.Failed() {
			t.Fatalf("part %d", part)
		}
	}
	engines := makeWorld(t, 1, false, func(*Options) {})
	for i, o := range tables {
		tb, failed := engines[0].NewTable(0, o)
		if failed == nil {
			failed = tb.Load(filepath.Join(dir, o.Name))
		}
		if failed != nil {
			t.Fatal(failed)
		}
		compareTables(t, tb.Table, one[i])
	}
	each(engines, func(r int, e *Engine) { e.Shutdown(limit) })
}

// compareTables compares rows, counters and progress.
func compareTables(t *testing.T, got, want *table.Table) {
	t.Helper()
	wanted := map[int64]table.Row{}
	want.All(func(r *table.Row) bool {
		wanted[r.Key] = *r
		return true
	})
	got.All(func(r *table.Row) bool {
		w, ok := wanted[r.Key]
		equal := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
		if !ok || !slices.EqualFunc(r.Weights, w.Weights, equal) || !slices.EqualFunc(r.State, w.State, equal) ||
			r.Idle != w.Idle || r.Pulls != w.Pulls {
			t.Errorf("table %q: key %d is %v, want %v", got.Options().Name, r.Key, r, w)
			return false
		}
		return true
	})
	a, _ := got.Progress()
	b, _ := want.Progress()
	if got.Len() != want.Len() || a.Updates != b.Updates || !slices.Equal(a.Powers, b.Powers) {
		t.Errorf("table %q: %d rows, %v, want %d, %v", got.Options().Name, got.Len(), a, want.Len(), b)
	}
}

// onTables gives each rank of worlds of some sizes a table, and ends the worlds.
func onTables(t *testing.T, sizes []int, f func(t *testing.T, e *Engine, tb *Table)) {
	inWorlds(t, sizes, func(t *testing.T, engines []*Engine) {
		each(engines, func(r int, e *Engine) {
			tb, err := e.NewTable(0, tableOptions("t", 2, table.Adam))
			if err != nil {
				t.Error(err)
				return
			}
			f(t, e, tb)
		})
	})
}

// push pushes a gradient of 1 for some keys.
func push(t *testing.T, e *Engine, tb *Table, keys ...int64) {
	t.Helper()
	var l table.Lookup
	if err := tb.Fill(&l, keys, table.Padding{}); err != nil {
		t.Error(err)
		return
	}
	g := slices.Repeat([]float32{1}, len(l.Keys)*tb.Options().Dim)
	op := tb.Push(&l, g, 0.5)
	if err := do(t, e, &op); err != nil {
		t.Error(err)
	}
}

// TestFilesOfTablesThatAreRefused: each mistake of one rank is an error of all that names it. The table stays as it is,
// an earlier save stays, and the next call works.
func TestFilesOfTablesThatAreRefused(t *testing.T) {
	shared := t.TempDir()
	onTables(t, []int{3}, func(t *testing.T, e *Engine, tb *Table) {
		last := e.opts.Rank == 2
		try := func(failed *Error, code Code, says string) {
			t.Helper()
			if (failed == nil) != (says == "") || failed != nil && (!strings.Contains(failed.Reason, says) ||
				failed.Code != code) {
				t.Errorf("rank %d: got %v, want %q", e.opts.Rank, failed, says)
			}
		}
		own := func(name, another string) string {
			if last {
				return another
			}
			return name
		}
		dir := filepath.Join(shared, t.Name())
		push(t, e, tb, 1, 2, 3, int64(e.opts.Rank)<<40)
		try(tb.Load(dir), StorageError, `table "t" cannot be loaded: rank 0: `+dir+" has no save of a table")
		try(tb.Save(own(dir, dir+"2")), PreconditionError,
			fmt.Sprintf(`Mismatched files of tables: rank 0 saves table "t" to %q, rank 2 saves table "t" to %q.`, dir, dir+"2"))
		try(tb.Save(own(dir, "")), PreconditionError, `rank 2 saves table "t" to "".`)
		try(tb.Save(""), InvalidArgument, "rank 0: the directory has no name")
		other, failed := e.NewTable(0, tableOptions("films", 2, table.Adam))
		try(failed, OK, "")
		if last {
			try(other.Load(dir), PreconditionError, `rank 0 saves table "t" to `)
		} else {
			try(tb.Save(dir), PreconditionError, fmt.Sprintf(`rank 2 loads table "films" from %q.`, dir))
		}

		try(tb.Save(dir), OK, "")
		push(t, e, tb, 1)
		try(other.Load(dir), InvalidArgument, `table "films" cannot be loaded: rank 0: the save is of a table whose name is t`)

		// One rank cannot write its file; the earlier save stays.
		f := &files{Table: tb, lane: e.world, dir: own(dir, filepath.Join(dir, "manifest", "none")), done: "saved"}
		_, failed = f.write(fmt.Sprintf("rows-0000000000000000-0000%d.bin", e.opts.Rank), table.Progress{Updates: 2})
		try(failed, StorageError, `table "t" cannot be saved: rank 2: mkdir `+dir+"/manifest: not a directory")
		rows := tb.Len()
		try(tb.Load(dir), OK, "")
		if p, _ := tb.Progress(); p.Updates != 1 || tb.Len() != rows {
			t.Errorf("the save has had %d pushes", p.Updates)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 4 {
			t.Errorf("rank %d: %v", e.opts.Rank, entries)
		}
	})
}

// TestDamagedSavesLeaveTheTable: a file that one rank needs is damaged.
func TestDamagedSavesLeaveTheTable(t *testing.T) {
	root := t.TempDir()
	onTables(t, []int{1, 3}, func(t *testing.T, e *Engine, tb *Table) {
		dir := filepath.Join(root, t.Name())
		for key := range int64(100) {
			push(t, e, tb, key)
		}
		if err := tb.Save(dir); err != nil {
			t.Error(err)
			return
		}
		push(t, e, tb, 1000)
		before, rows := tb.Len(), map[int64]float32{}
		tb.All(func(r *table.Row) bool { rows[r.Key] = r.Weights[0]; return true })
		if e.opts.Rank == 0 {
			files, _ := filepath.Glob(filepath.Join(dir, "rows-*"))
			name := files[len(files)-1] // of the last rank
			p, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
			}
			p[len(p)-1] ^= 1
			if err := os.WriteFile(name, p, 0o600); err != nil {
				t.Error(err)
			}
		}
		err := tb.Load(dir)
		last := len(e.world.members) - 1
		if err == nil || err.Code != StorageError ||
			!strings.Contains(err.Reason, fmt.Sprintf("rank %d: %s", last, dir)) ||
			!strings.Contains(err.Reason, "the checksum is wrong") {
			t.Errorf("got %v", err)
		}
		tb.All(func(r *table.Row) bool {
			if rows[r.Key] != r.Weights[0] {
				t.Errorf("key %d is %v, was %v", r.Key, r.Weights[0], rows[r.Key])
			}
			return true
		})
		if tb.Len() != before {
			t.Errorf("%d rows, were %d", tb.Len(), before)
		}
	})
}

// TestSavesBesidePushes: a push that changes rows during a save fails the save; a save and a load that are amid a push
// on one rank fail on all.
func TestSavesBesidePushes(t *testing.T) {
	root := t.TempDir()
	onTables(t, []int{2}, func(t *testing.T, e *Engine, tb *Table) {
		dir := filepath.Join(root, t.Name())
		var u table.Update
		if e.opts.Rank == 1 {
			u.Begin(tb.Table)
			if err := u.Add([]int64{1, 2}, make([]float32, 4)); err != nil {
				t.Error(err)
			}
			if _, err := u.Apply(1, 1); err != nil {
				t.Error(err)
			}
		}
		if err := tb.Save(dir); err == nil || err.Reason != `table "t" cannot be saved: rank 1: a push is in progress; wait `+
			"for it first." {
			t.Errorf("got %v", err)
		}
		if e.opts.Rank == 1 {
			if _, err := u.Apply(1, 1); err != nil {
				t.Error(err)
			}
		}
		if err := tb.Save(dir); err == nil || err.Reason != `table "t" cannot be saved: rank 0 has had 0 pushes, rank 1 has `+
			"had 1; save between two pushes." {
			t.Errorf("got %v", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("%v", entries)
		}
	})
}

// TestSavesOfJoinedRanks: the rows of a rank that has joined cannot be saved.
func TestSavesOfJoinedRanks(t *testing.T) {
	root := t.TempDir()
	onTables(t, []int{2}, func(t *testing.T, e *Engine, tb *Table) {
		if e.opts.Rank == 0 {
			if err := tb.Save(filepath.Join(root, t.Name())); err == nil ||
				!strings.Contains(err.Reason, "(joined: rank 1)") ||
				!strings.Contains(err.Reason, `table "t" cannot be saved: `) {
				t.Errorf("got %v", err)
			}
		}
		en, err := e.Enqueue(&Op{Type: operation.Join, Prescale: 1, Postscale: 1})
		if err == nil {
			err = finish(t, e, en)
			en.Release()
		}
		if err != nil {
			t.Error(err)
		}
	})
}
