package tablefile

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// TestMemory: a save needs memory for some slots, and a load for the rows, their index and one part of a file.
func TestMemory(t *testing.T) {
	rows, dim, most := 1_000_000, 16, int64(24<<20)
	if testing.Short() {
		rows = 200_000
	}
	o := table.Options{Name: "t", Dim: dim, Init: table.Uniform, Scale: 1, Optimizer: table.RowwiseAdagrad}
	tb := table.New(o)
	defer tb.Close()
	keys, out := make([]int64, 10_000), make([]float32, 10_000*dim)
	for n := 0; n < rows; n += len(keys) {
		for i := range keys {
			keys[i] = int64(n + i)
		}
		if err := tb.Pull(keys, out, true); err != nil {
			t.Fatal(err)
		}
	}
	debug.FreeOSMemory()
	began, largest := resident(t), int64(0)
	watch := func() error {
		largest = max(largest, resident(t)-began)
		return nil
	}
	dir, all := t.TempDir(), slots.Assign(1).Owned(0)
	f, err := WriteRows(dir, FileName(1, 0), tb, all, watch)
	if err != nil {
		t.Fatal(err)
	}
	if largest > most {
		t.Errorf("a save of %d MiB takes %d MiB", f.Bytes>>20, largest>>20)
	}
	if err := Commit(dir, &Manifest{Table: o, Files: []File{*f}}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	to := table.New(o)
	defer to.Close()
	debug.FreeOSMemory()
	began, largest = resident(t), 0
	if err := s.Read(all, nil, watch); err != nil {
		t.Fatal(err)
	}
	if largest > most {
		t.Errorf("to check a save of %d MiB takes %d MiB", f.Bytes>>20, largest>>20)
	}
	if err := s.Read(all, to, watch); err != nil {
		t.Fatal(err)
	}
	if limit := tb.Bytes()*5/4 + most; largest > limit {
		t.Errorf("a load of a table of %d MiB takes %d MiB", tb.Bytes()>>20, largest>>20)
	}
	if to.Len() != rows {
		t.Errorf("%d rows, want %d", to.Len(), rows)
	}
	runtime.KeepAlive(out)
}

// resident is the memory of this process in bytes.
func resident(t *testing.T) int64 {
	p, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(p))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
