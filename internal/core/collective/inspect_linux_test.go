package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/property"
)

// spoilt is an operation of float32 to which some members contribute NaNs.
type spoilt struct {
	kind    string // of spoiltKinds
	lengths []int  // of the parts, in elements
	in, out [][][]byte
	bad     [][]map[int]bool // where the NaNs are, by member and part
	fails   bool             // Unsound fails
	wrong   []string
	seen    [][]reduce.NonFinite // what Unsound was told, by member and part
}

var spoiltKinds = []string{"allreduce", "single copy", "reduce", "reducescatter"}

// errSpoilt is Unsound's error.
var errSpoilt = errors.New("spoilt")

func drawSpoilt(t *property.T, size int) *spoilt {
	s := &spoilt{kind: property.Pick(t, "kind", spoiltKinds), fails: t.Bool("fails")}
	most := 6
	if s.kind == "reduce" || s.kind == "reducescatter" {
		most = 1
	}
	s.lengths = property.List(t, "lengths", 1, most, func(t *property.T) int {
		return property.Pick(t, "length", []int{1, 5, 40, directBytes / 4, lineUpBytes/4 + 3, 5 * testChunk,
			9*testChunk + 1, 40 * testChunk})
	})
	for m := range size {
		s.in, s.out = append(s.in, nil), append(s.out, nil)
		s.bad, s.seen = append(s.bad, nil), append(s.seen, make([]reduce.NonFinite, len(s.lengths)))
		for i, n := range s.lengths {
			s.seen[m][i].First = -1
			if most > 1 && t.Int("absent", 0, 5) == 0 {
				s.in[m], s.out[m], s.bad[m] = append(s.in[m], nil), append(s.out[m], nil), append(s.bad[m], nil)
				continue
			}
			bad := map[int]bool{}
			if t.Int("brings NaNs", 0, 2) == 0 {
				for range t.Int("NaNs", 1, 3) {
					bad[t.Int("index", 0, n-1)] = true
				}
			}
			data := make([]byte, 4*n)
			for k := range n {
				v := float32(k%7 + m)
				if k%11 == 0 {
					v = math.MaxFloat32 // so the result is infinite, but no input is
				}
				if bad[k] {
					v = float32(math.NaN())
				}
				binary.NativeEndian.PutUint32(data[4*k:], math.Float32bits(v))
			}
			out := data
			if s.kind == "reducescatter" || !t.Bool("in place") {
				out = make([]byte, len(data))
			}
			if s.kind == "reduce" && m != 0 {
				out = nil
			}
			s.in[m], s.out[m], s.bad[m] = append(s.in[m], data), append(s.out[m], out), append(s.bad[m], bad)
		}
	}
	return s
}

// looking is one member's Inspector.
type looking struct {
	s      *spoilt
	member int
}

func (x looking) Sound(p []byte) bool { return reduce.Finite(tensor.Float32, p) }

func (x looking) Unsound(part int, rest iter.Seq2[int, []byte]) error {
	s, told := x.s, &x.s.seen[x.member][part]
	if told.First >= 0 {
		return nil
	}
	for at, p := range rest {
		told.Join(reduce.Find(tensor.Float32, p, true), int64(at/4))
	}
	s.lookForSpread(fmt.Sprintf("before member %d was told of part %d", x.member, part), x.member, part)
	if s.fails {
		return errSpoilt
	}
	return nil
}

// lookForSpread notes outputs that have a NaN which only the member contributes; with -1 those that have any.
func (s *spoilt) lookForSpread(when string, member, part int) {
	if s.kind == "reducescatter" && member >= 0 {
		return // its outputs have other places
	}
	for m := range s.out {
		for i, out := range s.out[m] {
			if member >= 0 && (i != part || m == member) {
				continue
			}
			for k := range len(out) / 4 {
				if v := math.Float32frombits(binary.NativeEndian.Uint32(out[4*k:])); v == v {
					continue
				}
				others := member < 0
				for from := range s.bad {
					others = others || from != member && s.bad[from][i][k]
				}
				own := &s.in[m][i][0] == &out[0] && s.bad[m][i][k]
				if member >= 0 && s.bad[member][i][k] && !others || member < 0 && !own {
					s.wrong = append(s.wrong, fmt.Sprintf("%s member %d has a NaN in part %d at %d", when, m, i, k))
					return
				}
			}
		}
	}
}

// start begins the operation on one member.
func (s *spoilt) start(l *Lane) Op {
	m := l.rank
	x := looking{s, m}
	a := Arguments{DType: tensor.Float32, Reduce: tensor.Sum, Prescale: 1, Postscale: 1, In: s.in[m][0],
		Out: s.out[m][0], Inspect: x}
	switch s.kind {
	case "reduce":
		a.Kind = Reduce
		return l.Start(&a)
	case "reducescatter":
		a.Kind = Reducescatter
		for r := range l.size {
			lo, hi := share(len(a.In), l.size, r)
			a.Counts = append(a.Counts, int64(hi-lo))
		}
		a.Out = a.Out[:a.Counts[m]]
		s.out[m][0] = a.Out
		return l.Start(&a)
	}
	for i := range s.lengths {
		a.Parts = append(a.Parts, Part{In: s.in[m][i], Out: s.out[m][i], Bytes: 4 * s.lengths[i]})
	}
	if s.kind == "single copy" && l.size > 1 {
		l.inspect = x
		return startSingle(l, l.layout(a.DType, a.Reduce, a.Parts, 1, 1))
	}
	return l.Start(&a)
}

// Members learn of all NaNs that they contribute, with their places, before these reach another member's output; and if
// one fails then, no output ever has them. The results are as without an inspection.
func TestInspectorsLookFirst(t *testing.T) {
	for range 8 { // the cases are small
		property.Check(t, func(rt *property.T) { inspectorsLookFirst(t, rt) })
	}
}

func inspectorsLookFirst(t *testing.T, rt *property.T) {
	size := property.Pick(rt, "size", []int{1, 2, 3, 5})
	rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
	g := newGroup(t, size, inproc.Options{Shared: true, Depth: 2 + size%2,
		ChunkBytes: property.Pick(rt, "chunk", []int{4, 160}) * testChunk})
	if size > 1 {
		copying(g, -1, rng)
	}
	s := drawSpoilt(rt, size)
	before := make([][][]byte, size)
	for m := range before {
		for _, in := range s.in[m] {
			before[m] = append(before[m], slices.Clone(in))
		}
	}
	ops, done := make([]Op, size), make([]bool, size)
	for m, l := range g.lanes {
		l.copyBytes = 2 * testChunk * size
		ops[m] = s.start(l)
	}
	failed := false
	for range 3000 * size {
		m := rng.IntN(size)
		if done[m] {
			continue
		}
		var err error
		done[m], err = ops[m].Advance()
		if err != nil {
			if !s.fails || !errors.Is(err, errSpoilt) {
				rt.Fatalf("member %d: %v", m, err)
			}
			failed, done[m] = true, true
		}
	}
	for _, text := range s.wrong {
		rt.Errorf("%s", text)
	}
	spoils := false
	for m := range size {
		for i := range s.lengths {
			bad := s.bad[m][i]
			spoils = spoils || len(bad) > 0
			first := -1
			for k := range bad {
				if first < 0 || k < first {
					first = k
				}
			}
			told := s.seen[m][i]
			right := told.First == int64(first) && int(told.NaNs) == len(bad)
			if told.Infs > 0 || !s.fails && !right {
				rt.Errorf("member %d was told %+v of part %d, whose NaNs are at %v", m, told, i, bad)
			} else if told.First >= 0 && !right {
				rt.Errorf("member %d was told %+v of part %d, whose NaNs are at %v, and failed", m, told, i, bad)
			}
		}
	}
	switch {
	case s.fails && spoils:
		if !failed {
			rt.Errorf("nobody failed")
		}
		s.lookForSpread("after the failure", -1, 0)
		for _, text := range s.wrong {
			rt.Errorf("%s", text)
		}
	default:
		s.checkResults(rt, before, done)
	}
}

func (s *spoilt) checkResults(rt *property.T, before [][][]byte, done []bool) {
	if slices.Contains(done, false) {
		rt.Fatalf("members have ended: %v", done)
	}
	size := len(before)
	for i := range s.lengths {
		srcs := make([][]byte, size)
		for m := range srcs {
			if srcs[m] = before[m][i]; srcs[m] == nil {
				srcs[m] = make([]byte, 4*s.lengths[i])
			}
		}
		want := naiveAllreduce(tensor.Float32, tensor.Sum, srcs, 1)
		for m := range srcs {
			got, want := s.out[m][i], want
			if s.kind == "reducescatter" {
				lo, hi := share(len(want), size, m)
				want = want[lo:hi]
			}
			if got != nil && string(got) != string(want) {
				rt.Errorf("member %d has another result of part %d", m, i)
			}
		}
	}
}
