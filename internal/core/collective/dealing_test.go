package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/property"
)

// dealtCase is a reducescatter of several parts, or an allgather.
type dealtCase struct {
	dt        tensor.DType
	op        tensor.ReduceOp
	pre, post float64
	counts    [][]int  // by part and member, in elements
	absent    [][]bool // by member and part: without an input; an allgather's member has no elements then
	dropped   [][]bool // by member and part: without an output
	inPlace   []bool   // by part
}

// drawDealt draws parts that are dealt out evenly or not, some of them empty, and some as long as several chunks.
func drawDealt(t *property.T, size int) dealtCase {
	c := dealtCase{
		dt:   tensor.DType(t.Int("type", 0, tensor.NumReducible-1)),
		op:   property.Pick(t, "op", ops),
		pre:  property.Pick(t, "prescale", []float64{1, 1, 0.5, 3}),
		post: property.Pick(t, "postscale", []float64{1, 1, 0.25, 1.0 / 3}),
	}
	if c.dt == tensor.Bool {
		c.pre, c.post = 1, 1
	}
	limits := []int{3, 40, 2 * directBytes / c.dt.Size(), 5 * testChunk / c.dt.Size()}
	c.counts = property.List(t, "parts", 1, 12, func(t *property.T) []int {
		most := property.Pick(t, "most", limits)
		even, n := t.Bool("even"), t.Int("elements", 0, most)
		return property.List(t, "shares", size, size, func(t *property.T) int {
			if even {
				return n
			}
			return t.Int("share", 0, most)
		})
	})
	n := len(c.counts)
	each := func(what string, odds int) [][]bool {
		return property.List(t, what, size, size, func(t *property.T) []bool {
			return property.List(t, what, n, n, func(t *property.T) bool { return t.Int(what, 0, odds) == odds })
		})
	}
	c.absent, c.dropped = each("absent", 8), each("dropped", 8)
	c.inPlace = property.List(t, "in place", n, n, func(t *property.T) bool { return t.Bool("in place") })
	return c
}

// bounds returns the range of part i that member m has, in bytes.
func (c *dealtCase) bounds(i, m int) (lo, hi int) {
	for _, n := range c.counts[i][:m] {
		lo += n * c.dt.Size()
	}
	return lo, lo + c.counts[i][m]*c.dt.Size()
}

// flat returns the counts in bytes, part by part.
func (c *dealtCase) flat() []int64 {
	var counts []int64
	for _, part := range c.counts {
		for _, n := range part {
			counts = append(counts, int64(n*c.dt.Size()))
		}
	}
	return counts
}

// a starts an operation on a member's parts by the arguments that carriers get.
func (c *dealtCase) arguments(kind Kind, parts []Part) *Arguments {
	a := &Arguments{Kind: kind, DType: c.dt, Reduce: c.op, Parts: parts, Counts: c.flat(), Prescale: 1, Postscale: 1}
	if kind == Reducescatter {
		a.Prescale, a.Postscale = c.pre, c.post
	}
	return a
}

// scatterJob checks each part against the reference for that part alone.
func (c dealtCase) scatterJob(rng *rand.Rand, start func(l *Lane, a *Arguments) Op) job {
	size, n := len(c.absent), len(c.counts)
	parts, whole, outs := make([][]Part, size), make([][]guarded, size), make([][]guarded, size)
	want, before := make([][]byte, n), make([][][]byte, size)
	for m := range size {
		parts[m], whole[m], outs[m] = make([]Part, n), make([]guarded, n), make([]guarded, n)
		before[m] = make([][]byte, n)
	}
	for i := range n {
		_, total := c.bounds(i, size-1)
		scaled := make([][]byte, size)
		for m := range size {
			lo, hi := c.bounds(i, m)
			parts[m][i].Bytes = total
			in := elements(rng, c.dt, total/c.dt.Size(), true)
			if c.absent[m][i] {
				clear(in)
			}
			before[m][i], whole[m][i] = in, newGuarded(in)
			outs[m][i] = newGuarded(make([]byte, hi-lo))
			if scaled[m] = in; c.pre != 1 {
				scaled[m] = naiveAllreduce(c.dt, tensor.Sum, [][]byte{in}, c.pre)
			}
			if !c.absent[m][i] {
				parts[m][i].In = whole[m][i].data()
			}
			switch {
			case c.dropped[m][i]:
			case c.inPlace[i] && !c.absent[m][i]:
				parts[m][i].Out = whole[m][i].data()[lo:hi]
			default:
				parts[m][i].Out = outs[m][i].data()
			}
		}
		want[i] = naiveAllreduce(c.dt, c.op, scaled, c.post)
	}
	return job{
		name:  fmt.Sprintf("reducescatter of %v %v, %v, scales %v and %v", c.counts, c.dt, c.op, c.pre, c.post),
		start: func(l *Lane) Op { return start(l, c.arguments(Reducescatter, parts[l.rank])) },
		check: func(m int) error {
			for i := range n {
				lo, hi := c.bounds(i, m)
				if p := &parts[m][i]; p.Out != nil && !bytes.Equal(p.Out, want[i][lo:hi]) {
					return fmt.Errorf("member %d, part %d: %x, want %x", m, i, p.Out, want[i][lo:hi])
				}
				if c.inPlace[i] && !c.dropped[m][i] && !c.absent[m][i] {
					copy(before[m][i][lo:hi], want[i][lo:hi])
				}
				if err := whole[m][i].expect(m, before[m][i]); err != nil {
					return fmt.Errorf("input of part %d: %w", i, err)
				}
				if !outs[m][i].intact() {
					return fmt.Errorf("member %d wrote outside of output %d", m, i)
				}
			}
			return nil
		},
	}
}

// gatherJob checks that each member gets what all have of each part.
func (c dealtCase) gatherJob(rng *rand.Rand, start func(l *Lane, a *Arguments) Op) job {
	size, n := len(c.absent), len(c.counts)
	for m := range size {
		for i := range n {
			if c.absent[m][i] {
				c.counts[i][m] = 0
			}
		}
	}
	parts, outs, want := make([][]Part, size), make([][]guarded, size), make([][]byte, n)
	for m := range size {
		parts[m], outs[m] = make([]Part, n), make([]guarded, n)
	}
	for i := range n {
		_, total := c.bounds(i, size-1)
		want[i] = elements(rng, c.dt, total/c.dt.Size(), false)
		for m := range size {
			lo, hi := c.bounds(i, m)
			outs[m][i] = newGuarded(make([]byte, total))
			p := &parts[m][i]
			p.In, p.Bytes = bytes.Clone(want[i][lo:hi]), hi-lo
			if c.dropped[m][i] {
				continue
			}
			if p.Out = outs[m][i].data(); c.inPlace[i] {
				copy(p.Out[lo:hi], p.In)
				p.In = p.Out[lo:hi]
			}
		}
	}
	return job{
		name:  fmt.Sprintf("allgather of %v %v", c.counts, c.dt),
		start: func(l *Lane) Op { return start(l, c.arguments(Allgather, parts[l.rank])) },
		check: func(m int) error {
			for i := range n {
				if c.dropped[m][i] {
					continue
				}
				if err := outs[m][i].expect(m, want[i]); err != nil {
					return fmt.Errorf("part %d: %w", i, err)
				}
			}
			return nil
		},
	}
}

func startDealt(l *Lane, a *Arguments) Op { return l.Start(a) }

// startDealtSingle copies from and to the other members' memory, whatever the length.
func startDealtSingle(l *Lane, a *Arguments) Op {
	trial, kind := &l.scattering, Kind(Reducescatter)
	if a.Kind == Allgather {
		trial, kind = &l.gathering, Allgather
	}
	s, err := l.dealOut(dealt{parts: a.Parts, counts: a.Counts, scatters: kind == Reducescatter}, layout{dt: a.DType,
		op: a.Reduce, prescale: a.Prescale, postscale: a.Postscale})
	if err != nil {
		return l.refuse("%w", err)
	}
	if s.length() == 0 {
		return l.done()
	}
	c := trial.class(s.length())
	c.judged, c.staged, c.between = true, false, leastBetween
	trial.asks(s.length())
	l.begin()
	return l.allreduceSingle.startDealt(l, kind, s, a.Parts, trial)
}

// However tensors are fused, whatever shares the members have of them, and over any transport, each reducescatter has
// the bits of one that is alone, and each allgather all elements. In place or not, nothing else is written.
func TestDealtPartsMatchTheReference(t *testing.T) {
	for name, o := range map[string]inproc.Options{"shared": {Shared: true}, "messages": {},
		"hosts": {Hosts: [][]int{{0, 1}, {2, 3}}}, "unequal hosts": {Hosts: [][]int{{0, 3}, {1}, {2}}}} {
		for _, deterministic := range []bool{false, true} {
			t.Run(fmt.Sprint(name, deterministic), func(t *testing.T) {
				property.Check(t, func(rt *property.T) {
					o := o
					size := 4
					if o.Hosts == nil {
						size = property.Pick(rt, "size", []int{1, 2, 3, 4})
					}
					o.ChunkBytes = property.Pick(rt, "chunk", []int{testChunk, 16 * testChunk})
					g := newGroup(t, size, o, Options{Deterministic: deterministic})
					rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
					var jobs []job
					for range 3 {
						jobs = append(jobs, drawDealt(rt, size).scatterJob(rng, startDealt),
							drawDealt(rt, size).gatherJob(rng, startDealt))
					}
					if err := g.schedule(rng, jobs); err != nil {
						rt.Fatal(err)
					}
				})
			})
		}
	}
}

func TestDealtPartsAreRefused(t *testing.T) {
	b := make([]byte, 16)
	for _, shared := range []bool{true, false} {
		l := newGroup(t, 2, inproc.Options{Shared: shared}).lanes[0]
		for want, a := range map[string]Arguments{
			"input of 12 bytes, expected 16": {Kind: Reducescatter, Parts: []Part{{In: b[:12], Out: b[:8]}},
				Counts: []int64{8, 8}},
			"output of 4 bytes, expected 8": {Kind: Reducescatter, Parts: []Part{{In: b, Out: b[:4]}},
				Counts: []int64{8, 8}},
			"input of 4 bytes, expected 8": {Kind: Allgather, Parts: []Part{{In: b[:4], Out: b}},
				Counts: []int64{8, 8}},
			"input of 0 bytes, expected 8": {Kind: Allgather, Parts: []Part{{Out: b}}, Counts: []int64{8, 8}},
			"output of 8 bytes, expected 16": {Kind: Allgather, Parts: []Part{{In: b[:8], Out: b[:8]}},
				Counts: []int64{8, 8}},
			"member 1 cannot have -8 bytes": {Kind: Allgather, Parts: []Part{{In: b[:8], Out: b[:8]}},
				Counts: []int64{8, -8}},
		} {
			a.DType, a.Reduce, a.Prescale, a.Postscale = tensor.Float32, tensor.Sum, 1, 1
			done, err := l.Start(&a).Advance()
			if !done || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("shared %v: Advance() = %v, %v; want an error with %q", shared, done, err, want)
			}
		}
	}
}
