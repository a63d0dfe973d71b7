package load

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"
)

// procOf is a /proc with processes 1, 20 (a child of 1), 30 and 40 (a child and a grandchild of 20), and 50 (a child of
// 1). Each value is in ticks.
func procOf(all, self, child, grandchild, stranger int) fstest.MapFS {
	stat := func(name string, parent, used int) *fstest.MapFile {
		const text = "7 (%s) S %d 7 7 0 -1 4 1 2 3 4 %d 1 2 3 20 0 4 0 99\n"
		return &fstest.MapFile{Data: fmt.Appendf(nil, text, name, parent, used)}
	}
	return fstest.MapFS{
		"stat":    {Data: fmt.Appendf(nil, "cpu  %d 1 2 5000 700 3 4 900 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", all)},
		"1/stat":  stat("init", 0, 500),
		"20/stat": stat("a ) b (c", 1, self),
		"30/stat": stat("rank", 20, child),
		"40/stat": stat("rank", 30, grandchild),
		"50/stat": stat("stranger", 1, stranger),
		"60/stat": {Data: []byte("60 (damaged) R")},
	}
}

func TestOthersAreNotThisProcessAndItsDescendants(t *testing.T) {
	before := used(procOf(1000, 10, 20, 30, 40), 20)
	if want := 1010 * tick; before.all != want {
		t.Errorf("the host has used %v, want %v", before.all, want)
	}
	if want := (10 + 20 + 30 + 3*6) * tick; before.own != want {
		t.Errorf("this process has used %v, want %v", before.own, want)
	}
	// Each of the three uses 50 ticks, the stranger 25.
	after := used(procOf(1175, 60, 70, 80, 65), 20)
	before.at = time.Unix(1e9, 0)
	after.at = before.at.Add(time.Second)
	if got := after.Others(before); got != 0.25 {
		t.Errorf("others use %v cores, want 0.25", got)
	}
	if got := before.Others(after); got != 0 {
		t.Errorf("of no time: %v", got)
	}
}

func TestUsedOfThisHost(t *testing.T) {
	if u := Used(); u.own > u.all {
		t.Errorf("%+v", u)
	}
	if u := used(fstest.MapFS{}, 1); u != (Usage{}) {
		t.Errorf("without a /proc: %+v", u)
	}
}
