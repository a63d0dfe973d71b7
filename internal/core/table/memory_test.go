package table

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// TestMemory fills a table as large as a test may be, and compares the memory of the process with what the rows need:
// at most half of that may come on top. The bound holds at each moment of the growth.
func TestMemory(t *testing.T) {
	rows := 10_000_000
	if testing.Short() || raceDetector {
		rows = 1_000_000
	}
	const dim, batch = 16, 10_000
	table := New(options(RowwiseAdagrad, dim))
	defer table.Close()
	least := func(n int) int64 { return int64(n) * (4*dim + 4 + 8 + 12) }
	debug.FreeOSMemory()
	began := resident(t)
	keys, out := make([]int64, batch), make([]float32, batch*dim)
	for n := 0; n < rows; n += batch {
		for i := range keys {
			keys[i] = int64(mix(uint64(n + i)))
		}
		if err := table.Pull(keys, out, true); err != nil {
			t.Fatal(err)
		}
		if n%(rows/20) == 0 && n > 0 && !raceDetector { // which needs memory of its own
			used := resident(t) - began
			if limit := least(n+batch)*3/2 + 32<<20; used > limit {
				t.Errorf("%d rows use %d MiB, the bound is %d MiB", n+batch, used>>20, limit>>20)
			}
		}
	}
	if table.Len() != rows {
		t.Errorf("%d rows, want %d", table.Len(), rows)
	}
	if got := table.Bytes(); got > least(rows)*3/2+slabTarget || got < least(rows) {
		t.Errorf("%d rows have %d bytes; they need %d", rows, got, least(rows))
	}
	largest := 0
	for i := range table.index.segments {
		largest = max(largest, len(table.index.segments[i].entries))
	}
	if largest > 4*rows/len(table.index.segments)+leastEntries {
		t.Errorf("one segment has %d entries: its growth would be a pause", largest)
	}
	runtime.KeepAlive(keys)
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
