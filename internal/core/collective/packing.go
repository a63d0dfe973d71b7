package collective

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// Packing turns an operation into one on a single piece of host memory without a prescale, for a carrier whose
// algorithms take neither parts nor a prescale. It serves one operation at a time.
type Packing struct {
	buffer  Buffer
	flat    Arguments // the operation on one piece
	lengths []int     // flat's
	parts   []Part    // the parts in buffer; nil if a single part's own memory is used
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
	if a.Parts == nil {
		return p.scale(a)
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
		pack(buf, a)
		f.In, f.Out, p.parts = buf, buf, a.Parts
	}
	a.enter(Moving)
	return nil
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

// pack copies a's parts side by side into buf, scaled by the prescale.
func pack(buf []byte, a *Arguments) {
	for i, part := range a.Parts {
		if i > 0 {
			failpoint.Here("pack")
		}
		to := buf[:part.Bytes]
		buf = buf[part.Bytes:]
		switch {
		case part.In == nil:
			clear(to)
		case a.Prescale != 1:
			reduce.Scale(a.DType, to, part.In, a.Prescale)
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
