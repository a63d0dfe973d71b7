package collective

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/property"
)

// Over messages, too, each of several tensors has the same bits as alone, however they are packed.
func TestPackedPartsMatchTheReference(t *testing.T) {
	property.Check(t, func(rt *property.T) {
		size := property.Pick(rt, "size", []int{2, 3, 4})
		g := newGroup(t, size, inproc.Options{}, Options{Deterministic: true})
		rng := rand.New(rand.NewPCG(rt.Uint64("seed"), 0))
		var jobs []job
		for range 3 {
			jobs = append(jobs, drawParts(rt, size).job(rng, func(l *Lane, s layout) Op {
				return l.Start(&Arguments{Kind: Allreduce, DType: s.dt, Reduce: s.op, Parts: s.parts,
					Prescale: s.prescale, Postscale: s.postscale})
			}))
		}
		if err := g.schedule(rng, jobs); err != nil {
			rt.Fatal(err)
		}
	})
}

// Adasum of packed parts is Adasum of each part, and a member without a part takes part with zeros.
func TestPackedAdasum(t *testing.T) {
	for _, shared := range []bool{true, false} {
		g := newGroup(t, 2, inproc.Options{Shared: shared})
		ops := make([]Op, 2)
		outs := make([][]Part, 2)
		for r, l := range g.lanes {
			a, b := bytes.Repeat([]byte{0, 0, 0, 0x40}, 3), bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 2) // 2 and 1
			outs[r] = []Part{{In: a, Out: make([]byte, 12), Bytes: 12}, {In: b, Out: b, Bytes: 8}}
			if r == 1 {
				outs[r][1] = Part{Bytes: 8}
			}
			ops[r] = l.Start(&Arguments{Kind: Adasum, DType: tensor.Float32, Parts: outs[r], Prescale: 0.5,
				Postscale: 4})
		}
		advanceAll(t, ops)
		for r := range outs {
			// Equal vectors are averaged: 2 × 0.5 × 4.
			if want := bytes.Repeat([]byte{0, 0, 0x80, 0x40}, 3); !bytes.Equal(outs[r][0].Out, want) {
				t.Errorf("shared %v, member %d: %x, want %x", shared, r, outs[r][0].Out, want)
			}
		}
		// A vector that is added to zeros stays: 1 × 0.5 × 4.
		if want := bytes.Repeat([]byte{0, 0, 0, 0x40}, 2); !bytes.Equal(outs[0][1].Out, want) {
			t.Errorf("shared %v: %x, want %x", shared, outs[0][1].Out, want)
		}
	}
}

// A Reduce and a Reducescatter with a prescale have the same bits as on inputs that were scaled before. The inputs stay
// as they are.
func TestPrescaledRows(t *testing.T) {
	const size, n = 3, 24
	in := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40} // 1 and 2
	want := bytes.Repeat([]byte{0, 0, 0x10, 0x41, 0, 0, 0x90, 0x41}, n/8)
	counts := []int64{n / size, n / size, n / size}
	for _, shared := range []bool{true, false} {
		g := newGroup(t, size, inproc.Options{Shared: shared})
		for _, kind := range []Kind{Reduce, Reducescatter} {
			ins, outs, ops := make([][]byte, size), make([][]byte, size), make([]Op, size)
			for r, l := range g.lanes {
				ins[r] = bytes.Repeat(in, n/8)
				if outs[r] = make([]byte, counts[r]); kind == Reduce {
					outs[r] = make([]byte, []int{0, n, 0}[r])
				}
				ops[r] = l.Start(&Arguments{Kind: kind, DType: tensor.Float32, Reduce: tensor.Sum, Root: 1, In: ins[r],
					Out: outs[r], Counts: counts, Prescale: 0.5, Postscale: 6})
			}
			advanceAll(t, ops)
			for r, out := range outs {
				if !bytes.Equal(out, want[:len(out)]) || !bytes.Equal(ins[r], bytes.Repeat(in, n/8)) {
					t.Errorf("kind %d, shared %v, member %d: %x of %x", kind, shared, r, out, ins[r])
				}
			}
		}
	}
}

func advanceAll(t *testing.T, ops []Op) {
	t.Helper()
	for left := len(ops); left > 0; {
		for i, op := range ops {
			if op == nil {
				continue
			}
			if done, err := op.Advance(); err != nil {
				t.Fatal(err)
			} else if done {
				ops[i] = nil
				left--
			}
		}
	}
}

// The timeline hears of copies if there are any.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		shared bool
		parts  int
		want   []Stage
	}{{false, 2, []Stage{PackingIn, Moving, PackingOut}}, {false, 1, []Stage{Moving}}, {true, 2, []Stage{Moving}}} {
		g := newGroup(t, 2, inproc.Options{Shared: c.shared})
		said := make([][]Stage, 2)
		ops := make([]Op, 2)
		for r, l := range g.lanes {
			parts := make([]Part, c.parts)
			for i := range parts {
				parts[i] = Part{In: make([]byte, 8), Out: make([]byte, 8), Bytes: 8}
			}
			ops[r] = l.Start(&Arguments{Kind: Allreduce, DType: tensor.Int64, Reduce: tensor.Sum, Parts: parts,
				Prescale: 1, Postscale: 1, Stage: func(s Stage) { said[r] = append(said[r], s) }})
		}
		advanceAll(t, ops)
		for r := range said {
			if !slices.Equal(said[r], c.want) {
				t.Errorf("%d parts, shared %v, member %d: stages %v, want %v", c.parts, c.shared, r, said[r], c.want)
			}
		}
	}
}
