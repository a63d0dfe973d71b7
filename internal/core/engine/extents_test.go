package engine

import (
	"slices"
	"testing"

	"github.com/gorovod/gorovod/test/property"
)

type ownedExtent struct {
	begin, end uintptr
	owner      int
}

// TestExtentsAreFoundAsByLooking compares find with a search through all ranges, after any additions and removals: it
// finds a range that overlaps and counts if there is one, and none otherwise.
func TestExtentsAreFoundAsByLooking(t *testing.T) {
	property.Check(t, func(t *property.T) {
		var s extents[int]
		var in []ownedExtent
		room := property.Pick(t, "room", []int{4, 100, 10000}) // few addresses: many ranges are equal
		growing := t.Int("growing", 1, 4)
		for range t.Int("steps", 1, 1000) {
			begin := uintptr(t.Int("begin", 0, room-1))
			end := begin + 1 + uintptr(t.Int("length", 0, 15))
			if len(in) > 0 && t.Int("what", 0, growing) == 0 {
				i := t.Int("which", 0, len(in)-1)
				s.remove(in[i].begin, in[i].end, in[i].owner)
				in = slices.Delete(in, i, i+1)
			} else {
				n := ownedExtent{begin, end, t.Int("owner", 0, 3)}
				s.add(n.begin, n.end, n.owner)
				in = append(in, n)
			}
			counts := func(owner int) bool { return owner != 0 }
			there := func(n ownedExtent) bool { return n.begin < end && begin < n.end && counts(n.owner) }
			owner, found := s.find(begin, end, counts)
			if found != slices.ContainsFunc(in, there) || found && !slices.ContainsFunc(in,
				func(n ownedExtent) bool { return there(n) && n.owner == owner }) {
				t.Fatalf("[%d, %d) among %d ranges: found %v, owner %d", begin, end, len(in), found, owner)
			}
		}
		for _, n := range in {
			s.remove(n.begin, n.end, n.owner)
		}
		if !s.empty() {
			t.Fatalf("not empty after the removal of all")
		}
	})
}

func anyOwner(int) bool { return true }

// TestTouchingExtentsDoNotOverlap: the end of a range is not in it.
func TestTouchingExtentsDoNotOverlap(t *testing.T) {
	var s extents[int]
	s.add(10, 20, 1)
	for _, c := range []struct {
		begin, end uintptr
		overlaps   bool
	}{{0, 10, false}, {20, 30, false}, {0, 11, true}, {19, 20, true}, {12, 13, true}, {0, 100, true}} {
		if _, got := s.find(c.begin, c.end, anyOwner); got != c.overlaps {
			t.Errorf("[%d, %d) overlaps [10, 20): %v", c.begin, c.end, got)
		}
	}
}

// TestExtentsAllocateNothingInSteadyState: a set that has once been as large allocates nothing.
func TestExtentsAllocateNothingInSteadyState(t *testing.T) {
	var s extents[int]
	step := func() {
		for i := range uintptr(1000) {
			s.add(i*7919%1000, i*7919%1000+1, 1)
		}
		for i := range uintptr(1000) {
			s.remove(i, i+1, 1)
		}
	}
	step()
	if n := testing.AllocsPerRun(10, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkExtentsAmongThousand measures the cost of an operation while a thousand others are pending.
func BenchmarkExtentsAmongThousand(b *testing.B) {
	var s extents[int]
	at := func(i int) (begin, end uintptr) { return uintptr(i*7919%1000) * 64, uintptr(i*7919%1000)*64 + 64 }
	for i := range 1000 {
		begin, end := at(i)
		s.add(begin, end, i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		begin, end := at(i % 1000)
		s.remove(begin, end, i%1000)
		if _, found := s.find(begin, end, anyOwner); found {
			b.Fatal("found what was removed")
		}
		s.add(begin, end, i%1000)
	}
}
