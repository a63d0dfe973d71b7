package tablefile

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

func options() table.Options {
	return table.Options{Name: "users", Dim: 3, Seed: 1 << 63, Init: table.Normal, Scale: 0.1, Optimizer: table.Adam,
		Rate: 0.1, Epsilon: 1e-8, Beta1: 0.9, Beta2: 0.999}
}

// filled makes a table of some rows that has had two updates.
func filled(t testing.TB, rows int) *table.Table {
	tb := table.New(options())
	t.Cleanup(tb.Close)
	keys := make([]int64, rows)
	for i := range keys {
		keys[i] = int64(i*i*i) - 1000
	}
	gradients := make([]float32, 3*rows)
	for i := range gradients {
		gradients[i] = float32(i%7) - 3
	}
	var u table.Update
	for range 2 {
		u.Begin(tb)
		if err := u.Add(keys, gradients); err != nil {
			t.Fatal(err)
		}
		if done, err := u.Apply(0.5, math.MaxInt); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	return tb
}

func never() error { return nil }

// save saves a table as so many members would that each have all of its rows.
func save(t testing.TB, dir string, tb *table.Table, id uint64, members int) {
	progress, _ := tb.Progress()
	m := &Manifest{Table: *tb.Options(), Progress: progress}
	owners := slots.Assign(members)
	for member := range members {
		f, err := WriteRows(dir, FileName(id, member), tb, owners.Owned(member), never)
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, *f)
	}
	if err := Commit(dir, m); err != nil {
		t.Fatal(err)
	}
}

// load reads a save as so many members.
func load(dir string, o table.Options, members int) ([]*table.Table, error) {
	owners := slots.Assign(members)
	var tables []*table.Table
	for member := range members {
		s, err := Open(dir)
		if err != nil {
			return nil, err
		}
		if err := s.Fits(&o); err != nil {
			return nil, err
		}
		if err := s.Read(owners.Owned(member), nil, never); err != nil {
			return nil, err
		}
		tb := table.New(o)
		if err := errors.Join(tb.Replace(s.Progress), s.Read(owners.Owned(member), tb, never)); err != nil {
			return nil, err
		}
		tables = append(tables, tb)
	}
	return tables, nil
}

func rows(tables ...*table.Table) map[int64][]float32 {
	all := map[int64][]float32{}
	for _, tb := range tables {
		tb.All(func(r *table.Row) bool {
			all[r.Key] = append(slices.Clone(r.Weights), r.State...)
			return true
		})
	}
	return all
}

func same(t *testing.T, got, want map[int64][]float32) {
	t.Helper()
	for key, row := range want {
		if !slices.Equal(got[key], row) {
			t.Fatalf("key %d: %v, want %v", key, got[key], row)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
}

func TestAnyNumberReadsASave(t *testing.T) {
	tb := filled(t, 5000)
	for _, writers := range []int{1, 3, 8} {
		dir := t.TempDir()
		save(t, dir, tb, 7, writers)
		for _, readers := range []int{1, 2, 5} {
			tables, err := load(dir, options(), readers)
			if err != nil {
				t.Fatal(err)
			}
			same(t, rows(tables...), rows(tb))
			want, _ := tb.Progress()
			for _, one := range tables {
				if p, _ := one.Progress(); p.Updates != 2 || !slices.Equal(p.Powers, want.Powers) {
					t.Errorf("progress %v, want %v", p, want)
				}
				one.Close()
			}
		}
		if s, err := Open(dir); err != nil || s.Rows() != 5000 {
			t.Error(s.Rows(), err)
		}
	}
}

// TestALaterSaveTakesThePlaceOfAnEarlierOne: until its manifest is there, the earlier one is whole, and afterwards no
// file of it is left. Files of other programs stay.
func TestALaterSaveTakesThePlaceOfAnEarlierOne(t *testing.T) {
	dir := t.TempDir()
	first, second := filled(t, 100), filled(t, 2000)
	save(t, dir, first, 1, 2)
	foreign := filepath.Join(dir, "rows-of-mine.bin")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteRows(dir, FileName(2, 0), second, []int{1, 2, 3}, never); err != nil {
		t.Fatal(err)
	}
	tables, err := load(dir, options(), 1)
	if err != nil {
		t.Fatal(err)
	}
	same(t, rows(tables...), rows(first))
	save(t, dir, second, 3, 1)
	if tables, err = load(dir, options(), 1); err != nil {
		t.Fatal(err)
	}
	same(t, rows(tables...), rows(second))
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"manifest", FileName(3, 0), "rows-of-mine.bin"}; !slices.Equal(names, want) {
		t.Errorf("%v are left, want %v", names, want)
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	dir, tb := t.TempDir(), filled(t, 10)
	gone := errors.New("the job has failed")
	if _, err := WriteRows(dir, FileName(1, 0), tb, []int{0, 1}, func() error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
	_, err := WriteRows(filepath.Join(dir, "none"), FileName(1, 0), tb, []int{0}, never)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
	f, err := WriteRows(dir, FileName(1, 0), tb, []int{0, 1}, never)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Table: options(), Progress: table.Progress{Updates: 1, Powers: []float64{1, 1}}, Files: []File{*f}}
	if err := Commit(dir, m); err == nil || err.Error() != "no file has slots 2 to 4095" {
		t.Error(err)
	}
	m.Files = append(m.Files, File{Name: FileName(1, 1)})
	for slot := 2; slot < slots.Count; slot++ {
		m.Files[1].Slots = append(m.Files[1].Slots, Slot{Number: slot})
	}
	if err := Commit(dir, m); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that another host has written to another disk: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir+" has no save of a table") {
		t.Error(err)
	}
}

func TestAnotherTable(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, filled(t, 10), 1, 2)
	mayDiffer := func(o *table.Options) { o.Rate, o.Idle, o.Keep, o.Rows = 7, 8, 9, 1e6 }
	for says, change := range map[string]func(o *table.Options){
		"":                                                 mayDiffer,
		"admit_after is 0; here it is 3":                   func(o *table.Options) { o.Admit = 3 },
		"name is users; here it is ":                       func(o *table.Options) { o.Name = "films" },
		"dim is 3; here it is 4":                           func(o *table.Options) { o.Dim = 4 },
		"optimizer is adam; here it is adagrad":            func(o *table.Options) { o.Optimizer = table.Adagrad },
		"seed is 9223372036854775808; here it is 5":        func(o *table.Options) { o.Seed = 5 },
		"init is normal; here it is zeros":                 func(o *table.Options) { o.Init = table.Zeros },
		"beta2 is 0.999; here it is 0.99":                  func(o *table.Options) { o.Beta2 = 0.99 },
		"num_embeddings is 0; here it is 1000000000000000": func(o *table.Options) { o.Keys = 1e15 },
	} {
		o := options()
		change(&o)
		_, err := load(dir, o, 2)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	m := Manifest{Table: options()}
	m.Table.Keys = 100
	for keys, fits := range map[int64]bool{99: false, 100: true, 1000: true, 0: true} {
		o := options()
		if o.Keys = keys; (m.Fits(&o) == nil) != fits {
			t.Errorf("a save of 100 keys for a table of %d: %v", keys, m.Fits(&o))
		}
	}
}

// TestDamage: a save whose files have changed in any byte is no save, and no rows of it are used.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, filled(t, 60), 1, 2)
	try := func(what, says string) {
		t.Helper()
		if _, err := load(dir, options(), 1); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want %q", what, err, says)
		}
	}
	for _, name := range []string{manifestName, FileName(1, 0), FileName(1, 1)} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(whole)/20)
		for i := 0; i < len(whole); i += step {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 0x10
			for _, p := range [][]byte{flipped, whole[:i], append(bytes.Clone(whole), 1)} {
				if err := os.WriteFile(path, p, 0o600); err != nil {
					t.Fatal(err)
				}
				try("damage of "+name, name)
			}
		}
		os.Remove(path)
		try("a missing file", name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		try("a pipe", "regular file")
		os.Remove(path)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := load(dir, options(), 3); err != nil {
		t.Error(err)
	}
}

func TestManifestsThatMakeNoSense(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, filled(t, 60), 1, 2)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	without5 := func(m *Manifest) { m.Files[0].Slots = slices.Delete(m.Files[0].Slots, 5, 6) }
	oneMore := func(m *Manifest) { m.Files[0].Slots = append(m.Files[0].Slots, Slot{Number: 4096}) }
	for says, change := range map[string]func(m *Manifest){
		"no file has slots 5 to 5":                 without5,
		"slot 0 stands there twice":                func(m *Manifest) { m.Files[1].Slots[0].Number = 0 },
		"3 bytes, and its slots have":              func(m *Manifest) { m.Files[1].Bytes = 3 },
		`"../../etc/passwd" is no name for a file`: func(m *Manifest) { m.Files[1].Name = "../../etc/passwd" },
		"or stands there twice":                    func(m *Manifest) { m.Files[1].Name = m.Files[0].Name },
		"describe no slot":                         func(m *Manifest) { m.Files[1].Slots[0].Rows = -1 },
		"slot 7 has 1 keys without rows": func(m *Manifest) {
			m.Files[0].Slots[7].Candidates, m.Files[0].Bytes = 1, m.Files[0].Bytes+table.CandidateBytes
		},
		"[4096 0 0 0] describe no slot":         oneMore,
		"1 powers, where adam has 2":            func(m *Manifest) { m.Progress.Powers = m.Progress.Powers[:1] },
		"dim is 0; 1 to 65536 are possible":     func(m *Manifest) { m.Table.Dim = 0 },
		`optimizer is "lion"; possible are sgd`: func(m *Manifest) { m.Table.Optimizer = "lion" },
		"bytes, and its slots have":             func(m *Manifest) { m.Files[1].Slots[0].Rows = table.MaxRows },
	} {
		text, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		m, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		if text, err = m.encode(); err != nil {
			t.Fatal(err)
		}
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	for text, says := range map[string]string{
		"":                        "it is no manifest of a sparse table",
		"\x80\x04\x95 a pickle":   "it is no manifest of a sparse table",
		"gorovod sparse table 2 ": "it is a manifest of another version",
		"gorovod sparse table 1 ": "its checksum is wrong",
		head([]byte(`{"Table":{"Dim":1,"Colour":2}}`)) + `{"Table":{"Dim":1,"Colour":2}}`: `unknown field "Colour"`,
		head([]byte(`{}{}`)) + `{}{}`: "there is something after its end",
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}
