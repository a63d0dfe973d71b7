package engine

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// FuzzSparseMessages reads what other members may send for a batch of Pulls or Pushes of two tables. Whatever arrives,
// it is refused, or each of its bytes belongs to a demand, to keys, to gradients or to their padding.
func FuzzSparseMessages(f *testing.F) {
	words := func(w ...uint64) (p []byte) {
		for _, x := range w {
			p = binary.NativeEndian.AppendUint64(p, x)
		}
		return p
	}
	rate := uint64(math.Float32bits(0.5))
	f.Add(words(0, 0, 0, 0), false, 3, 1)
	f.Add(words(2, demandAsks|demandTrains, 1, demandAsks, 5, 6, 7), false, 3, 1)
	f.Add(words(1, demandAsks|rate, 1, demandAsks|rate, 5, 0, 0, 6, 0), true, 3, 1)
	f.Add(words(math.MaxUint64, demandAsks, 1<<60, demandAsks, 5), true, 1<<16, 1)
	f.Add(words(0, 0, 2, demandAsks|rate, 5, 6), true, 1, 1) // keys without gradients
	f.Add(append(words(0, 0, 0, 0), 1, 2, 3), false, 1, 1)
	f.Fuzz(func(t *testing.T, p []byte, push bool, dim0, dim1 int) {
		dims := []int{1 + (dim0-1)&(1<<16-1), 1 + (dim1-1)&(1<<16-1)} // 1 to the most that a table may have
		s := messagesOf(push, dims)
		if len(p) < len(dims)*demandBytes { // exchangeKeys refuses these
			return
		}
		var aligned collective.Buffer
		defer aligned.Free()
		in, err := aligned.Grow(2 * len(p))
		if err != nil {
			t.Fatal(err)
		}
		copy(in, p)
		if s.read(in[:len(p)], 0) != "" {
			return
		}
		copy(in[len(p):], p) // the same from another member, which is aligned because the first was whole
		if what := s.read(in[len(p):][:len(p)], 1); what != "" {
			t.Fatalf("the second time: %s", what)
		}
		if len(s.asked) != 2*len(dims) {
			t.Fatalf("%d requests of 2 members for %d tables", len(s.asked), len(dims))
		}
		for m := range 2 {
			n := int64(len(dims) * demandBytes)
			for i, r := range s.asked[m*len(dims):][:len(dims)] {
				size, _ := s.sizes(i, int64(len(r.keys)))
				n += size
				if want := len(r.keys) * dims[i]; r.part != i || push && len(r.gradients) != want ||
					!push && r.gradients != nil {
					t.Fatalf("part %d has %d keys and %d gradients", r.part, len(r.keys), len(r.gradients))
				}
			}
			if n != int64(len(p)) {
				t.Fatalf("a message of %d bytes is read as %d", len(p), n)
			}
		}
		for i := range dims {
			its := binary.NativeEndian.Uint64(p[i*demandBytes+8:])
			r := math.Float32frombits(uint32(its))
			if err := s.lane.current.parts[i].err; err != nil && !math.IsNaN(float64(r)) {
				t.Fatalf("both members have the rate %v: %v", r, err)
			}
		}
	})
}

// messagesOf is a sparse that reads messages of two members about a batch with a part for each of dims.
func messagesOf(push bool, dims []int) *sparse {
	kind := operation.Pull
	if push {
		kind = operation.Push
	}
	s := &sparse{lane: &lane{members: []int{0, 1}}, push: push, dims: dims}
	for range dims {
		s.lane.current.parts = append(s.lane.current.parts, part{resp: &negotiate.Response{Type: kind, Name: "t"}})
		s.rates, s.raters = append(s.rates, 0), append(s.raters, -1)
	}
	return s
}
