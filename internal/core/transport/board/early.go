package board

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// slot holds an operand that a member has sent with its mark (transport.Operand); the data follows it. Each member with
// a mailbox has Config.Slots of them. It fills one before the mark, and frees it when the mark has been answered: it
// has read the card's record, or the end of the card's generation, or the mark was refused. Between the mark and its
// answer, whoever relays the board's log may read the slot. The lock, which the mark takes and the reader of the log
// has taken since, orders the writes before the reads.
type slot struct {
	key    atomic.Uint64 // generation and card of the mark; 0: free
	length uint32        // of the data
	dtype  uint16
	reduce uint16
	scale  uint64 // its bits
	_      [5]uint64
}

const slotHead = int(unsafe.Sizeof(slot{}))

// keyOf is never 0, because 0 is no generation.
func keyOf(card, gen uint32) uint64 { return uint64(gen)<<32 | uint64(card) }

// slot returns a member's i-th slot, and the room for its data.
func (b *Board) slot(member, i int) (*slot, []byte) {
	p := b.slots[(member*b.cfg.Slots+i)*b.lay.slotSize:][:b.lay.slotSize]
	return (*slot)(unsafe.Pointer(&p[0])), p[slotHead:]
}

// Put copies an operand into a free slot of member, for the mark m that the member is about to make. It returns false
// if the operand has no data or too much, or if no slot is free. A member's calls of Put and Drop must not be
// concurrent.
func (b *Board) Put(member int, m transport.Mark, o *transport.Operand) bool {
	n := len(o.Data)
	if n == 0 || n > b.cfg.SlotBytes || member >= b.cfg.posters() {
		return false
	}
	for i := range b.cfg.Slots {
		s, data := b.slot(member, i)
		if s.key.Load() != 0 {
			continue
		}
		copy(data, o.Data)
		s.length, s.dtype, s.reduce = uint32(n), uint16(o.DType), uint16(o.Reduce)
		s.scale = math.Float64bits(o.Scale)
		s.key.Store(keyOf(m.Card, m.Gen))
		return true
	}
	return false
}

// Drop frees the slot that member has filled for a card, at generation gen if gen is not 0. It reports whether there
// was one.
func (b *Board) Drop(member int, card, gen uint32) bool {
	for i := range b.cfg.Slots {
		s, _ := b.slot(member, i)
		key := s.key.Load()
		if key != 0 && uint32(key) == card && (gen == 0 || uint32(key>>32) == gen) {
			s.key.Store(0)
			return true
		}
	}
	return false
}

// Operand returns the operand that member has put for the mark m. ok is false if there is none. The data is valid until
// the mark is answered. Only the reader of the log may call it, between the card's record and the answer.
func (b *Board) Operand(member int, m transport.Mark) (o transport.Operand, ok bool, err error) {
	for i := range b.cfg.Slots {
		s, data := b.slot(member, i)
		if s.key.Load() != keyOf(m.Card, m.Gen) {
			continue
		}
		n := s.length
		o = transport.Operand{DType: tensor.DType(s.dtype), Reduce: tensor.ReduceOp(s.reduce),
			Scale: math.Float64frombits(s.scale)}
		err := reduce.Check(o.DType, o.Reduce)
		if err == nil {
			err = reduce.CheckScale(o.DType, o.Scale)
		}
		if err != nil || n == 0 || int64(n) > int64(len(data)) || int(n)%o.DType.Size() != 0 {
			return o, false, fmt.Errorf("%w: operand of member %d for card %d: %d bytes, %v, %v", ErrCorrupt, member,
				m.Card, n, o.DType, err)
		}
		o.Data = data[:n:n]
		return o, true, nil
	}
	return o, false, nil
}
