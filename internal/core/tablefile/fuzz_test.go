package tablefile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// A manifest of any content is an error, or says the same again when it is written. The fuzzer's inputs get a right
// checksum, which would stop it otherwise.
func FuzzManifest(f *testing.F) {
	dir := f.TempDir()
	save(f, dir, filled(f, 20), 1, 3)
	whole, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		f.Fatal(err)
	}
	_, text, _ := bytes.Cut(whole, []byte("\n"))
	f.Add(text)
	f.Add([]byte(`{"Table":{"Name":"a","Dim":65536,"Init":"zeros","Optimizer":"ftrl","Rate":1},"Progress":{"Updates":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(append([]byte(head(text)), text...))
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		n, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := n.encode(); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%s, then %s: %v", again, third, err)
		}
	})
}

// Files of any content, with whatever the manifest says of them, are an error, or rows that a save has again.
func FuzzRows(f *testing.F) {
	tb := table.New(table.Options{Name: "t", Dim: 2, Init: table.Zeros, Optimizer: table.RowwiseAdagrad, Keys: 50,
		Admit: 2})
	for _, keys := range [][]int64{{1, 2, 3, 7, 30}, {1, 2, 3, 9}} {
		tb.BeginPull()
		if err := tb.Pull(keys, make([]float32, 2*len(keys)), true); err != nil {
			f.Fatal(err)
		}
	}
	var whole []byte
	var has []Slot
	for slot := range slots.Count {
		if p, n, err := tb.AppendRecords(nil, slot); err != nil {
			f.Fatal(err)
		} else if len(p) > 0 {
			whole, has = append(whole, p...), append(has, Slot{Number: slot, Counts: n})
		}
	}
	f.Add(whole, int64(1), int64(0))
	f.Add(whole[:len(whole)-1], int64(1), int64(1))
	f.Add(append(bytes.Clone(whole), whole...), int64(2), int64(0))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, p []byte, most, least int64) {
		path := filepath.Join(dir, FileName(1, 0))
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Save{dir: dir, Manifest: Manifest{Table: *tb.Options(),
			Files: []File{{Name: FileName(1, 0), Bytes: int64(len(p))}}}}
		offset, wanted := int64(0), []int{}
		for i, slot := range has {
			if slot.Rows = most & 3; i%2 == 0 {
				slot.Rows = least & 3
			}
			s.places[slot.Number] = place{0, offset, slot}
			offset, wanted = offset+slot.bytes(int64(tb.Options().RecordBytes())), append(wanted, slot.Number)
		}
		to := table.New(*tb.Options())
		defer to.Close()
		// The checksums are zeros: what matters is that nothing of a wrong form gets so far.
		_ = s.Read(wanted, to, never)
		to.All(func(r *table.Row) bool {
			if r.Key < 0 || r.Key >= 50 {
				t.Errorf("key %d is in a table of 50", r.Key)
			}
			return true
		})
	})
}
