package collective

import (
	"fmt"
	"math"
	"slices"
)

// A reducescatter deals its parts out to the members: each gets a share of every part. An allgather puts the parts
// together again. A piece is one member's share of one part. Pieces are ordered by region: first those of member 0, in
// the order of the parts, then those of member 1, and so on. So what one member has stands together, and several parts
// are moved as one.

// dealt describes the parts of a reducescatter, or of an allgather.
type dealt struct {
	parts []Part
	// counts has the bytes of each member's share: size entries for part 0, then those for part 1, and so on. They are
	// the same on all members.
	counts     []int64
	rank, size int
	// scatters says that this is a reducescatter, so In is a whole part, and Out this member's share. Otherwise In is
	// the share, and Out the whole part.
	scatters bool
}

// pieces sets dst to the pieces. Of a reducescatter all have an In, and those of this member an Out. Of an allgather
// all have an Out, and those of this member an In. Bytes is the length of both. A part without In or Out has pieces
// without.
func (d *dealt) pieces(dst []Part) ([]Part, error) {
	n := len(d.parts)
	if len(d.counts) != n*d.size {
		return dst, fmt.Errorf("%d counts for %d members", len(d.counts), n*d.size)
	}
	dst = slices.Grow(dst[:0], n*d.size)[:n*d.size]
	for i := range d.parts {
		counts := d.counts[i*d.size:][:d.size]
		if err := d.checkPart(i, counts); err != nil {
			return dst, err
		}
		p, at := &d.parts[i], 0
		for m, c := range counts {
			piece := Part{Bytes: int(c)}
			whole := func(p []byte) []byte {
				if p == nil {
					return nil
				}
				return p[at : at+int(c) : at+int(c)]
			}
			switch {
			case d.scatters && m == d.rank:
				piece.In, piece.Out = whole(p.In), p.Out
			case d.scatters:
				piece.In = whole(p.In)
			case m == d.rank:
				piece.In, piece.Out = p.In, whole(p.Out)
			default:
				piece.Out = whole(p.Out)
			}
			dst[m*n+i] = piece
			at += int(c)
		}
	}
	return dst, nil
}

// checkPart checks the lengths of part i.
func (d *dealt) checkPart(i int, counts []int64) error {
	total := int64(0)
	for m, c := range counts {
		if c < 0 || c > math.MaxInt-total {
			return fmt.Errorf("member %d cannot have %d bytes", m, c)
		}
		total += c
	}
	p, own := &d.parts[i], counts[d.rank]
	in, out := own, total
	if d.scatters {
		in, out = total, own
	}
	if int64(len(p.In)) != in && (p.In != nil || !d.scatters) {
		return fmt.Errorf("part %d: input of %d bytes, expected %d", i, len(p.In), in)
	}
	if p.Out != nil && int64(len(p.Out)) != out {
		return fmt.Errorf("part %d: output of %d bytes, expected %d", i, len(p.Out), out)
	}
	return nil
}

// regions sets bounds to the bytes of each member's pieces, one region after the other.
func (d *dealt) regions(bounds []int64) []int64 {
	bounds = slices.Grow(bounds[:0], d.size)[:d.size]
	clear(bounds)
	for i := range d.counts {
		bounds[i%d.size] += d.counts[i]
	}
	return bounds
}

// deal lays the pieces of d out, and sets l.offsets to the places of the regions. The lists are in the lane's memory.
func (l *Lane) dealOut(d dealt, s layout) (layout, error) {
	d.rank, d.size = l.rank, l.size
	var err error
	if l.pieces, err = d.pieces(l.pieces); err != nil {
		return s, err
	}
	s = l.layout(s.dt, s.op, l.pieces, s.prescale, s.postscale)
	for m := range l.offsets {
		l.offsets[m] = s.starts[m*len(d.parts)]
	}
	return s, nil
}

// region is the layout of this member's pieces alone. Their places are those in s.
func (l *Lane) region(s layout) layout {
	n := len(s.parts) / l.size
	lo := l.rank * n
	s.parts, s.starts = s.parts[lo:lo+n], s.starts[lo:lo+n+1]
	return s
}
