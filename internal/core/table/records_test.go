package table

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// trained makes a table with some rows and updates.
func trained(t *testing.T, o Options, updates int) *Table {
	t.Helper()
	table := New(o)
	t.Cleanup(table.Close)
	rng := rand.New(rand.NewPCG(7, uint64(o.Dim)))
	var u Update
	for range updates {
		keys, seen := []int64{}, map[int64]bool{}
		for range 300 {
			if key := int64(rng.Uint64()) >> rng.IntN(60); !seen[key] {
				keys, seen[key] = append(keys, key), true
			}
		}
		g := make([]float32, len(keys)*o.Dim)
		for i := range g {
			g[i] = float32(rng.NormFloat64())
		}
		if err := table.Pull(keys, make([]float32, len(g)), true); err != nil {
			t.Fatal(err)
		}
		u.Begin(table)
		if err := u.Add(keys, g); err != nil {
			t.Fatal(err)
		}
		if done, err := u.Apply(0.1, math.MaxInt); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	return table
}

// moved makes a table of the records of another one.
func moved(t *testing.T, from *Table) *Table {
	t.Helper()
	return movedTo(t, from, *from.Options())
}

// movedTo makes a table with other options than the one whose records it takes.
func movedTo(t *testing.T, from *Table, o Options) *Table {
	t.Helper()
	to := New(o)
	t.Cleanup(to.Close)
	if err := to.Pull([]int64{1, 2, 3}, make([]float32, 3*from.options.Dim), true); err != nil {
		t.Fatal(err) // rows that go away
	}
	p, amid := from.Progress()
	if err := from.Options().CheckProgress(&p); amid || err != nil {
		t.Fatal(amid, err)
	}
	if err := to.Replace(p); err != nil {
		t.Fatal(err)
	}
	c := NewRecordChecker(from.Options())
	var records []byte
	for slot := range slots.Count {
		var err error
		var n Counts
		if records, n, err = from.AppendRecords(records[:0], slot); err != nil {
			t.Fatal(err)
		}
		rows := int(n.Rows) * c.Begin(slot, false)
		if err := c.Check(records[:rows]); err != nil {
			t.Fatal(err)
		}
		if err := to.Insert(records[:rows]); err != nil {
			t.Fatal(err)
		}
		if length := c.Begin(slot, true); len(records) != rows+int(n.Candidates)*length {
			t.Fatalf("the records of %v have %d bytes", n, len(records))
		}
		if err := c.Check(records[rows:]); err != nil {
			t.Fatal(err)
		}
		if err := to.InsertCandidates(records[rows:]); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func all(table *Table) map[int64]Row {
	rows := map[int64]Row{}
	table.All(func(r *Row) bool {
		rows[r.Key] = Row{r.Key, slices.Clone(r.Weights), slices.Clone(r.State), r.Pulls, r.Idle}
		return true
	})
	return rows
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func compare(t *testing.T, got, want *Table) {
	t.Helper()
	rows, others := all(got), all(want)
	if len(rows) != len(others) || got.Len() != want.Len() {
		t.Errorf("%d rows (%d), want %d", len(rows), got.Len(), len(others))
	}
	for key, w := range others {
		g, ok := rows[key]
		if !ok || !sameBits(g.Weights, w.Weights) || !sameBits(g.State, w.State) || g.Pulls != w.Pulls ||
			g.Idle != w.Idle {
			t.Fatalf("key %d: %v, want %v", key, g, w)
		}
	}
}

// TestRecordsKeepATable: a table of another one's records is that table, also in its later updates.
func TestRecordsKeepATable(t *testing.T) {
	for _, optimizer := range optimizers {
		for _, dim := range []int{1, 3, 16} {
			o := options(optimizer, dim)
			table := trained(t, o, 5)
			other := moved(t, table)
			compare(t, other, table)
			keys := []int64{0, 1, 5, -9, 1 << 40}
			g := make([]float32, len(keys)*dim)
			for i := range g {
				g[i] = float32(i) - 3
			}
			for range 3 {
				for _, one := range []*Table{table, other} {
					var u Update
					u.Begin(one)
					if err := u.Add(keys, g); err != nil {
						t.Fatal(err)
					}
					if done, err := u.Apply(0.25, math.MaxInt); !done || err != nil {
						t.Fatal(done, err)
					}
				}
			}
			compare(t, other, table)
			if p, _ := other.Progress(); p.Updates != 8 {
				t.Errorf("%s: %d updates", optimizer, p.Updates)
			}
		}
	}
}

// TestAnUpdateInProgress: a save can see that it is amid one, a load does not take its rows away, and one that had
// begun before a load ends with an error.
func TestAnUpdateInProgress(t *testing.T) {
	table := New(options(SGD, 2))
	defer table.Close()
	var u Update
	u.Begin(table)
	if err := u.Add([]int64{1, 2, 3}, make([]float32, 6)); err != nil {
		t.Fatal(err)
	}
	if done, err := u.Apply(1, 2); done || err != nil {
		t.Fatal(done, err)
	}
	if _, amid := table.Progress(); !amid {
		t.Error("not amid an update of which one row is left")
	}
	if err := table.Replace(table.Options().Begun()); !errors.Is(err, ErrAmid) {
		t.Errorf("got %v", err)
	}
	if done, err := u.Apply(1, 2); !done || err != nil {
		t.Fatal(done, err)
	}
	if p, amid := table.Progress(); amid || p.Updates != 1 {
		t.Error(p, amid)
	}
	u.Begin(table)
	if err := u.Add([]int64{1, 2, 3}, make([]float32, 6)); err != nil {
		t.Fatal(err)
	}
	if err := table.Replace(table.Options().Begun()); err != nil || table.Len() != 0 {
		t.Fatal(err, table.Len())
	}
	if _, err := u.Apply(1, 3); err == nil || !strings.Contains(err.Error(), "loaded from a file during a push") {
		t.Errorf("got %v", err)
	}
	if err := u.Add([]int64{1}, make([]float32, 2)); err == nil {
		t.Error("gradients are added to an update of other rows")
	}
}

// TestRecordsKeepCandidates: a key that has been pulled once before a save gets its row at the next pull after it, and
// the limits of a table hold after a load.
func TestRecordsKeepCandidates(t *testing.T) {
	o := options(SGD, 2)
	o.Admit, o.Rows, o.Idle = 2, leastShare*slots.Count, 50
	table := New(o)
	defer table.Close()
	pull := func(table *Table, keys ...int64) {
		t.Helper()
		table.BeginPull()
		if err := table.Pull(keys, make([]float32, 2*len(keys)), true); err != nil {
			t.Fatal(err)
		}
	}
	pull(table, 1, 2, 3)
	pull(table, 2, 3, 4)
	other := moved(t, table)
	if table.Len() != 2 || other.Len() != 2 {
		t.Fatalf("%d and %d rows", table.Len(), other.Len())
	}
	pull(table, 1, 5)
	pull(other, 1, 5)
	compare(t, other, table)
	if _, ok := all(other)[1]; !ok || other.Len() != 3 {
		t.Errorf("%d rows", other.Len())
	}
	c := NewRecordChecker(&o)
	c.Begin(slots.Of(slots.Hash(5)), true)
	err := c.Check(appendHead(nil, 5, 2, 0))
	if err == nil || !strings.Contains(err.Error(), "has no row after 2 pulls") {
		t.Error(err)
	}
}

func TestRecordsThatAreWrong(t *testing.T) {
	o := options(RowwiseAdagrad, 2)
	o.Keys = 1000
	record := func(keys ...int64) []byte {
		var p []byte
		for _, key := range keys {
			p = binary.LittleEndian.AppendUint64(p, uint64(key))
			p = append(p, make([]byte, o.RecordBytes()-8)...)
		}
		return p
	}
	slot := slots.Of(slots.Hash(5))
	other := int64(0)
	for slots.Of(slots.Hash(other)) == slot {
		other++
	}
	c := NewRecordChecker(&o)
	for says, records := range map[string][]byte{
		"":                                record(5),
		"27 bytes are no records":         record(5)[:27],
		"key -1 is not one of 0 to 999":   record(-1),
		"key 1000 is not one of 0 to 999": record(1000),
		"belongs to slot":                 record(other),
		"key 5 stands after key 5":        record(5, 5),
	} {
		c.Begin(slot, false)
		if err := c.Check(records); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	c.Begin(slot, false)
	if err := c.Check(record(5)); err != nil {
		t.Error(err)
	}
	if err := c.Check(record(5)); err == nil {
		t.Error("the keys of two parts of a slot need not ascend")
	}
	for _, p := range []Progress{{Powers: []float64{0.5}}, {Powers: nil}, {Powers: []float64{0.5, 2}},
		{Powers: []float64{math.NaN(), 0}}, {Powers: []float64{0, -1}}} {
		adam := options(Adam, 1)
		if err := adam.CheckProgress(&p); err == nil {
			t.Errorf("%v is a progress of Adam", p)
		}
	}
}

func TestCopySlot(t *testing.T) {
	table := trained(t, options(Adam, 3), 4)
	keys, weights := make([]int64, 50), make([]float32, 150)
	rows, seen := all(table), 0
	for slot := range slots.Count {
		n := table.CopySlot(slot, keys, weights)
		if n > 0 && table.CopySlot(slot, keys[:n-1], weights) != n {
			t.Error("the slot has other rows if there is no room for them")
		}
		if !slices.IsSorted(keys[:n]) {
			t.Errorf("keys %v", keys[:n])
		}
		for i, key := range keys[:n] {
			if !sameBits(weights[3*i:][:3], rows[key].Weights) {
				t.Errorf("key %d: %v, want %v", key, weights[3*i:][:3], rows[key].Weights)
			}
		}
		seen += n
	}
	if seen != len(rows) {
		t.Errorf("%d of %d rows", seen, len(rows))
	}
}
