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

// partsCase is an allreduce of several parts.
type partsCase struct {
	dt        tensor.DType
	op        tensor.ReduceOp
	pre, post float64
	lengths   []int    // in elements
	absent    [][]bool // by member and part
	inPlace   []bool   // by part
}

// drawParts draws lengths. Among them are empty parts, parts that are reduced many at a time, and parts of several
// chunks.
func drawParts(t *property.T, size int) partsCase {
	c := partsCase{
		dt:   tensor.DType(t.Int("type", 0, tensor.NumReducible-1)),
		op:   property.Pick(t, "op", ops),
		pre:  property.Pick(t, "prescale", []float64{1, 1, 0.5, 3}),
		post: property.Pick(t, "postscale", []float64{1, 1, 0.25, 1.0 / 3}),
	}
	if c.dt == tensor.Bool {
		c.pre, c.post = 1, 1
	}
	borders := []int{directBytes / c.dt.Size(), directBytes/c.dt.Size() - 1, lineUpBytes / c.dt.Size(),
		lineUpBytes/c.dt.Size() - 1}
	c.lengths = property.List(t, "lengths", 1, 20, func(t *property.T) int {
		switch t.Int("kind of length", 0, 3) {
		case 0:
			return t.Int("length", 0, 40)
		case 1:
			return t.Int("length", 0, 3*directBytes/c.dt.Size())
		case 2:
			return property.Pick(t, "length", borders)
		default:
			return t.Int("length", 0, 9*testChunk/c.dt.Size())
		}
	})
	c.absent = make([][]bool, size)
	n := len(c.lengths)
	for m := range c.absent {
		c.absent[m] = property.List(t, "absent", n, n, func(t *property.T) bool { return t.Int("absent", 0, 4) == 4 })
	}
	c.inPlace = property.List(t, "in place", n, n, func(t *property.T) bool { return t.Bool("in place") })
	return c
}

// job checks each part against the reference for that part alone.
func (c partsCase) job(rng *rand.Rand, start func(l *Lane, s layout) Op) job {
	size := len(c.absent)
	parts := make([][]Part, size)
	ins := make([][][]byte, size)
	outs := make([][]guarded, size)
	want := make([][]byte, len(c.lengths))
	for m := range parts {
		parts[m], ins[m], outs[m] = make([]Part, len(want)), make([][]byte, len(want)), make([]guarded, len(want))
	}
	for i, n := range c.lengths {
		scaled := make([][]byte, size)
		for m := range size {
			parts[m][i].Bytes = n * c.dt.Size()
			if scaled[m] = make([]byte, n*c.dt.Size()); c.absent[m][i] {
				continue
			}
			in := elements(rng, c.dt, n, false)
			ins[m][i] = in
			if scaled[m] = in; c.pre != 1 {
				scaled[m] = naiveAllreduce(c.dt, tensor.Sum, [][]byte{in}, c.pre)
			}
			if c.inPlace[i] {
				outs[m][i] = newGuarded(in)
				parts[m][i].In = outs[m][i].data()
			} else {
				outs[m][i] = newGuarded(make([]byte, len(in)))
				parts[m][i].In = bytes.Clone(in)
			}
			parts[m][i].Out = outs[m][i].data()
		}
		want[i] = naiveAllreduce(c.dt, c.op, scaled, c.post)
	}
	return job{
		name: fmt.Sprintf("allreduce of parts of %v %v, %v, scales %v and %v, %d members", c.lengths, c.dt, c.op,
			c.pre, c.post, size),
		start: func(l *Lane) Op { return start(l, l.layout(c.dt, c.op, parts[l.rank], c.pre, c.post)) },
		check: func(m int) error {
			for i := range want {
				if c.absent[m][i] {
					continue
				}
				if !c.inPlace[i] && !bytes.Equal(parts[m][i].In, ins[m][i]) {
					return fmt.Errorf("member %d: the input of part %d has changed", m, i)
				}
				if err := outs[m][i].expect(m, want[i]); err != nil {
					return fmt.Errorf("part %d: %w", i, err)
				}
			}
			return nil
		},
	}
}

func startPipelined(l *Lane, s layout) Op {
	if l.size == 1 || s.length() == 0 {
		return l.startParts(s)
	}
	l.begin()
	return l.allreducePipelined.start(l, s)
}

func startChosen(l *Lane, s layout) Op {
	return l.AllreduceParts(s.dt, s.op, s.parts, s.prescale, s.postscale)
}

// However tensors are fused, each has the same bits as alone, whatever its length, its neighbours, the borders of the
// chunks, and the members that have it.
func TestPartsMatchTheReference(t *testing.T) {
	property.Check(t, func(rt *property.T) {
		size := property.Pick(rt, "size", []int{2, 3, 4, 7})
		g := newGroup(t, size, inproc.Options{Shared: true, Depth: 2 + size%3, ChunkBytes: property.Pick(rt, "chunk",
			[]int{testChunk, 16 * testChunk})})
		rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
		var jobs []job
		for range 3 {
			jobs = append(jobs, drawParts(rt, size).job(rng, startChosen), drawParts(rt, size).job(rng, startPipelined))
		}
		if err := g.schedule(rng, jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

// A single member has every part, and scales it twice.
func TestPartsOfASingleMember(t *testing.T) {
	for _, shared := range []bool{true, false} {
		property.Check(t, func(rt *property.T) {
			g := newGroup(t, 1, inproc.Options{Shared: shared})
			rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
			c := drawParts(rt, 1)
			clear(c.absent[0])
			if err := g.schedule(rng, []job{c.job(rng, startChosen)}); err != nil {
				rt.Fatal(err)
			}
		})
	}
}

// The same with a goroutine for each member, for the race detector.
func TestPartsConcurrently(t *testing.T) {
	rng := random(t)
	for _, size := range []int{2, 4} {
		g := newGroup(t, size, inproc.Options{Shared: true, ChunkBytes: 8 * testChunk})
		var jobs []job
		for range 30 {
			c := partsCase{dt: tensor.DType(rng.IntN(tensor.NumReducible)), op: tensor.Max, pre: 1, post: 1,
				absent: make([][]bool, size)}
			if c.dt != tensor.Bool && rng.IntN(2) == 0 {
				c.pre = 0.5
			}
			for range 1 + rng.IntN(30) {
				c.lengths = append(c.lengths, rng.IntN([]int{10, 1000, 6 * testChunk}[rng.IntN(3)]))
				c.inPlace = append(c.inPlace, rng.IntN(2) == 0)
				for m := range c.absent {
					c.absent[m] = append(c.absent[m], rng.IntN(5) == 0)
				}
			}
			jobs = append(jobs, c.job(rng, startChosen))
		}
		g.runConcurrently(t, jobs)
	}
}

func TestPartsAreRefused(t *testing.T) {
	l := newGroup(t, 2, inproc.Options{Shared: true}).lanes[0]
	b := make([]byte, 8)
	for want, c := range map[string]struct {
		dt       tensor.DType
		prescale float64
		part     Part
	}{
		"element type":                 {99, 1, Part{}},
		"scaled":                       {tensor.Bool, 2, Part{b, b, 8}},
		"part 1: 6 bytes":              {tensor.Float32, 1, Part{b[:6], b[:6], 6}},
		"part 1: -4 bytes":             {tensor.Float32, 1, Part{nil, nil, -4}},
		"part 1: input of 4 bytes":     {tensor.Float32, 1, Part{b[:4], b, 8}},
		"part 1: input of 0 bytes":     {tensor.Float32, 1, Part{nil, b, 8}},
		"part 1: output of 4 bytes":    {tensor.Float32, 1, Part{b, b[:4], 8}},
		"part 1: output of 0 bytes, e": {tensor.Float32, 1, Part{b, nil, 8}},
	} {
		done, err := l.AllreduceParts(c.dt, tensor.Sum, []Part{{b, b, 8}, c.part}, c.prescale, 1).Advance()
		if !done || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Advance() = %v, %v; want an error with %q", done, err, want)
		}
	}
}
