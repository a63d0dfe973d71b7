package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// Reducescatters and Allgathers. Each member has a share of each tensor, and current.counts has the shares' bytes, part
// by part. The carrier drops an output that nobody wants.

// startReducescatter begins the reducescatters of a batch as one.
func (l *lane) startReducescatter(b *negotiate.Batch) {
	x := &l.current
	x.memory, x.counts = x.memory[:0], x.counts[:0]
	for i := range x.parts {
		p := &x.parts[i]
		own := l.share(p.resp)
		n, _ := p.resp.Shape.NumElements() // checked when the Response was decoded
		part := collective.Part{Bytes: int(n) * b.DType.Size()}
		part.Out, _ = l.wanted(p, l.ownRows(p.resp), own)
		if p.entry != nil {
			part.In = p.entry.op.In
		}
		x.memory = append(x.memory, part)
	}
	l.carryDealt(collective.Arguments{Kind: collective.Reducescatter, DType: b.DType, Reduce: b.ReduceOp,
		Prescale: b.Prescale, Postscale: b.Postscale})
}

// startAllgather begins the allgathers of a batch as one.
func (l *lane) startAllgather(*negotiate.Batch) {
	x := &l.current
	x.memory, x.counts = x.memory[:0], x.counts[:0]
	for i := range x.parts {
		p := &x.parts[i]
		out, _, ok := l.gathered(p)
		if !ok {
			return
		}
		part := collective.Part{Out: out}
		if p.entry != nil {
			part.In, part.Bytes = p.entry.op.In, len(p.entry.op.In)
		}
		x.memory = append(x.memory, part)
	}
	l.carryDealt(collective.Arguments{Kind: collective.Allgather, Prescale: 1, Postscale: 1})
}

// carryDealt begins the operation that a describes, on current.memory and current.counts.
func (l *lane) carryDealt(a collective.Arguments) {
	x := &l.current
	if !l.separate() {
		return
	}
	a.Parts, a.Counts, a.Stage = x.memory, x.counts, l.onStage
	l.carry(a)
}

// share appends to current.counts the bytes that a Reducescatter gives to each member, and returns this member's.
func (l *lane) share(resp *negotiate.Response) (own int) {
	x := &l.current
	row := rowBytes(resp.Shape, resp.DType)
	for m := range l.members {
		x.counts = append(x.counts, operation.Share(resp.Shape[0], m, len(l.members))*row)
	}
	return int(x.counts[len(x.counts)-len(l.members)+l.rank])
}

// ownRows is the shape of this member's output of a Reducescatter.
func (l *lane) ownRows(resp *negotiate.Response) tensor.Shape {
	return append(tensor.Shape{operation.Share(resp.Shape[0], l.rank, len(l.members))}, resp.Shape[1:]...)
}

// gathered makes the output of an Allgather, nil if nobody wants it, and appends to current.counts the bytes of each
// member, of which own are this member's. It returns false after an abort.
func (l *lane) gathered(p *part) (out []byte, own int, ok bool) {
	x := &l.current
	if len(p.resp.FirstDims) != len(l.members) {
		l.engine.net.Abort(fmt.Errorf("protocol error: allgather %q of %d ranks has rows of %d", p.resp.Name,
			len(l.members), len(p.resp.FirstDims)))
		return nil, 0, false
	}
	total, ok := l.affordable(p, p.resp.Shape)
	if !ok {
		return nil, 0, false
	}
	row := rowBytes(p.resp.Shape, p.resp.DType)
	for _, d := range p.resp.FirstDims {
		x.counts = append(x.counts, d*row)
	}
	out, _ = l.wanted(p, p.resp.Shape, total)
	return out, int(p.resp.FirstDims[l.rank] * row), true
}

// separate replaces inputs that overlap with their outputs by copies. The shorter of the two may be this member's share
// of the longer one: then the operation is in place. It returns false after an abort.
func (l *lane) separate() bool {
	x := &l.current
	total := 0
	for i := range x.memory {
		if !l.inPlace(i) {
			total += len(x.memory[i].In)
		}
	}
	if total == 0 {
		return true
	}
	buf := l.grow(total)
	if buf == nil {
		return false
	}
	for i := range x.memory {
		if p := &x.memory[i]; !l.inPlace(i) {
			n := copy(buf, p.In)
			p.In, buf = buf[:n:n], buf[n:]
		}
	}
	return true
}

// inPlace reports whether a carrier may work on the memory of a part of the current batch: whether input and output
// are apart from each other, or one is this member's share of the other.
func (l *lane) inPlace(part int) bool {
	p := &l.current.memory[part]
	if !overlap(p.In, p.Out) {
		return true
	}
	whole, own := p.In, p.Out
	if len(whole) < len(own) {
		whole, own = own, whole
	}
	place := 0
	for _, n := range l.current.counts[part*len(l.members):][:l.rank] {
		place += int(n)
	}
	return place < len(whole) && &whole[place] == &own[0]
}
