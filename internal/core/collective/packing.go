package collective

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// Packing turns an operation into one on a single piece of host memory without a prescale, for a carrier whose
// algorithms take neither parts nor a prescale. It serves one operation at a time.
type Packing struct {
	Rank int // this member

	buffer  Buffer
	flat    Arguments // the operation on one piece
	lengths []int     // flat's
	counts  []int64   // flat's, of parts that are dealt out
	pieces  []Part    // of these parts: see dealt; kept
	parts   []Part    // the parts or pieces in flat's output; nil if a single part's own memory is used
	stage   func(Stage)
	op      Op // on the piece
	ended   ended
}

// Packs reports whether an operation needs a Packing: it has Parts, or a prescale.
func Packs(a *Arguments) bool {
	return a.Parts != nil || a.Prescale != 1 && (a.Kind == Reduce || a.Kind == Reducescatter)
}

// Start begins a, for which Packs is true. c begins the same operation on one piece of memory: that of a or of its
// single part if possible, otherwise the packing's.
func (p *Packing) Start(c Carrier, a *Arguments) Op {
	if err := p.flatten(a); err != nil {
		p.ended = ended{err}
		return &p.ended
	}
	p.op = c.Start(&p.flat)
	if p.parts == nil {
		return p.op
	}
	return p
}

// flatten makes flat: a on one piece of memory, whose input is scaled by the prescale.
func (p *Packing) flatten(a *Arguments) error {
	p.flat, p.lengths, p.parts, p.stage = *a, p.lengths[:0], nil, a.Stage
	f := &p.flat
	f.Parts, f.Prescale = nil, 1
	switch {
	case a.Parts == nil:
		return p.scale(a)
	case a.Kind == Reducescatter || a.Kind == Allgather:
		err := p.flattenDealt(a)
		a.enter(Moving)
		return err
	}
	total := 0
	for i := range a.Parts {
		p.lengths = append(p.lengths, a.Parts[i].Bytes)
		total += a.Parts[i].Bytes
	}
	f.Lengths = p.lengths
	switch one := &a.Parts[0]; {
	case total == 0:
		f.In, f.Out = nil, nil
	case len(a.Parts) == 1 && one.In != nil:
		f.In, f.Out = one.In, one.Out
		if a.Prescale != 1 {
			reduce.Scale(a.DType, f.Out, f.In, a.Prescale)
			f.In = f.Out
		}
	default:
		buf, err := p.grow(total)
		if err != nil {
			return err
		}
		a.enter(PackingIn)
		pack(buf, a.Parts, a.DType, a.Prescale)
		f.In, f.Out, p.parts = buf, buf, a.Parts
	}
	a.enter(Moving)
	return nil
}

// flattenDealt makes flat of an operation whose parts are dealt out to the members: region by region, see dealt. A
// single part stays where it is if its memory will do.
func (p *Packing) flattenDealt(a *Arguments) error {
	f, one := &p.flat, &a.Parts[0]
	d := dealt{parts: a.Parts, counts: a.Counts, rank: p.Rank, size: len(a.Counts) / len(a.Parts),
		scatters: a.Kind == Reducescatter}
	var err error
	if p.pieces, err = d.pieces(p.pieces); err != nil {
		return err
	}
	p.counts = d.regions(p.counts)
	f.Counts = p.counts
	own, begin, total := int(p.counts[p.Rank]), 0, 0
	for m, n := range p.counts {
		if m < p.Rank {
			begin += int(n)
		}
		total += int(n)
	}
	mine := p.pieces[p.Rank*len(a.Parts):][:len(a.Parts)]
	f.In, f.Out = one.In, one.Out
	if !d.scatters {
		if len(a.Parts) == 1 && one.Out != nil || total == 0 {
			return nil
		}
		if f.Out, err = p.grow(total); err == nil {
			a.enter(PackingIn)
			f.In, p.parts = f.Out[begin:begin+own], p.pieces
			pack(f.In, mine, a.DType, 1)
		}
		return err
	}
	packs := len(a.Parts) > 1 || one.In == nil || a.Prescale != 1
	drops := len(a.Parts) > 1 || one.Out == nil || !packs && overlap(one.In, one.Out)
	if total == 0 || !packs && !drops {
		return nil
	}
	buf, err := p.grow(total + own) // if only one of the two is used, the other has no pages
	if err != nil {
		return err
	}
	if packs {
		a.enter(PackingIn)
		f.In = buf[:total]
		pack(f.In, p.pieces, a.DType, a.Prescale)
	}
	if drops {
		f.Out, p.parts = buf[total:], mine
	}
	return nil
}

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	x, y := addressOf(a), addressOf(b)
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// scale sets flat's input to a's input times the prescale: in the output of a Reduce, if the member has one, otherwise
// in the packing's memory.
func (p *Packing) scale(a *Arguments) error {
	to := a.Out
	if a.Kind != Reduce || len(to) != len(a.In) {
		buf, err := p.grow(len(a.In))
		if err != nil {
			return err
		}
		to = buf
	}
	reduce.Scale(a.DType, to, a.In, a.Prescale)
	p.flat.In = to
	return nil
}

// grow returns n bytes of the packing's memory.
func (p *Packing) grow(n int) ([]byte, error) {
	buf, err := p.buffer.Grow(n)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d bytes: %w", n, err)
	}
	return buf, nil
}

// pack copies parts side by side into buf, scaled by the prescale.
func pack(buf []byte, parts []Part, dt tensor.DType, prescale float64) {
	for i, part := range parts {
		if i > 0 {
			failpoint.Here("pack")
		}
		to := buf[:part.Bytes]
		buf = buf[part.Bytes:]
		switch {
		case part.In == nil:
			clear(to)
		case prescale != 1:
			reduce.Scale(dt, to, part.In, prescale)
		default:
			copy(to, part.In)
		}
	}
}

// Advance advances the operation on the piece of memory.
func (p *Packing) Advance() (bool, error) {
	done, err := p.op.Advance()
	if !done || err != nil {
		return done, err
	}
	if p.stage != nil {
		p.stage(PackingOut)
	}
	data := p.flat.Out
	for _, part := range p.parts {
		if part.Out != nil {
			copy(part.Out, data[:part.Bytes])
		}
		data = data[part.Bytes:]
	}
	p.parts, p.op, p.flat = nil, nil, Arguments{} // so that the tensors are not kept alive
	return true, nil
}

// Free frees the memory. Call it when nothing touches the memory any more.
func (p *Packing) Free() { p.buffer.Free() }
