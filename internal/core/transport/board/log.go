package board

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// The log is a ring of records. A record's header word holds its kind in bits 0-7, batchEnd in bit 8, and chained in
// bit 9. For a Response bits 32-63 hold the payload's length. For a card bits 12-31 hold the card, and bits 32-63 its
// generation, or, for a result, the payload's length.
//
// Batches need no table: the reader that cuts the log, or MarkLast, sets batchEnd in the last published record and
// moves the cut behind it. Readers read only below the cut, up to the first batchEnd, so all of them see the same
// batches.
//
// A MarkGroup that completes a chained card record completes the record after it, too.
const (
	batchEnd = 1 << 8
	chained  = 1 << 9
)

// cardRecord is the header of a record about a card.
func cardRecord(kind byte, card, gen uint32) uint64 {
	return uint64(kind) | uint64(card)<<12 | uint64(gen)<<32
}

// responseRecord is the header of a Response of n bytes.
func responseRecord(n int) uint64 { return uint64(transport.RecordResponse) | uint64(n)<<32 }

// resultRecord is the header of the record of a card with a result of n bytes.
func resultRecord(card uint32, n int) uint64 {
	return cardRecord(transport.RecordResult, card, uint32(n))
}

func (b *Board) corruptLog(format string, args ...any) error {
	return fmt.Errorf("%w: log: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// raiseFloor moves the floor up to the slowest reader's cursor. The lock is held.
func (b *Board) raiseFloor() error {
	tail, floor := b.regs.tail.Load(), b.regs.floor
	if tail-floor > uint64(len(b.log)) || tail%8 != 0 {
		return b.corruptLog("end %d, floor %d", tail, floor)
	}
	slowest := tail
	for i := range b.cfg.Readers {
		c := b.cursor(i).Load()
		if c-floor > tail-floor {
			return b.corruptLog("reader %d at %d, outside %d to %d", i, c, floor, tail)
		}
		slowest = min(slowest, c)
	}
	b.regs.floor = slowest
	return nil
}

// room reports whether n bytes fit behind the end of the log without touching records that a reader has not read. The
// lock is held.
func (b *Board) room(n int) (bool, error) {
	fits := func() bool { return b.regs.tail.Load()-b.regs.floor+uint64(n) <= uint64(len(b.log)) }
	if b.regs.tail.Load() >= b.regs.floor && b.regs.tail.Load()%8 == 0 && fits() {
		return true, nil
	}
	if err := b.raiseFloor(); err != nil {
		return false, err
	}
	return fits(), nil
}

// append writes a record for which there is room and returns its end. The lock
// is held.
func (b *Board) append(head uint64, payload []byte) uint64 {
	pos := b.regs.tail.Load()
	*word(b.log, pos) = head
	put(b.log, pos+recordHeader, payload)
	b.regs.last = pos
	end := pos + uint64(messageSize(len(payload)))
	b.regs.tail.Store(end)
	return end
}

// Publish appends encoded Responses to the log, in order, and returns the number of those for which there is room now:
// 0 if the log is closed. No batch ends between two of them.
func (b *Board) Publish(responses ...[]byte) (n int, err error) {
	for _, p := range responses {
		if len(p) > transport.MaxRecord || messageSize(len(p))+b.cfg.reserve() > len(b.log) {
			return 0, fmt.Errorf("board: a response of %d bytes does not fit into the log (at most %d)",
				len(p), min(transport.MaxRecord, len(b.log)-b.cfg.reserve()-recordHeader))
		}
	}
	if err := b.lock(0); err != nil {
		return 0, err
	}
	defer b.unlock()
	if closed, err := b.isClosed(); closed || err != nil {
		return 0, err
	}
	for _, p := range responses {
		if room, err := b.roomForResponse(p); err != nil || !room {
			return n, err
		}
		b.append(responseRecord(len(p)), p)
		n++
	}
	return n, nil
}

// roomForResponse reports whether p fits into the log, beside the card records for which Publish leaves room. If not,
// Next wakes the coordinator when there may be room. The lock is held.
func (b *Board) roomForResponse(p []byte) (bool, error) {
	need := messageSize(len(p)) + b.cfg.reserve()
	room, err := b.room(need)
	if err == nil && !room {
		// A reader moves its cursor before it looks at starved, so either the reader sees this store or the second look
		// sees the cursor.
		b.regs.starved.Store(1)
		room, err = b.room(need)
	}
	return room, err
}

// Next returns the next batch for this reader, nil if there is none. All readers get the same batches. The records are
// valid until the reader's next call. If there is nothing to read, a call costs one load.
func (b *Board) Next(reader int) ([]transport.Record, error) {
	r := &b.readers[reader]
	if b.regs.tail.Load() == r.pos {
		_, err := b.isClosed()
		return nil, err
	}
	cut := b.regs.cut.Load()
	if cut == r.pos {
		var err error
		if cut, err = b.cutLog(reader, cut); err != nil {
			return nil, err
		}
	}
	if cut-r.pos > uint64(len(b.log)) || cut%8 != 0 {
		return nil, b.corruptLog("cut at %d, reader %d at %d", cut, reader, r.pos)
	}
	end, err := b.readBatch(r, cut)
	if err != nil {
		return nil, err
	}
	r.pos, b.own.reads[reader] = end, true
	b.cursor(reader).Store(end)
	if b.regs.starved.Load() != 0 && b.regs.starved.CompareAndSwap(1, 0) {
		b.wake(0)
	}
	return r.records, nil
}

// cutLog ends the batch that starts at from, unless another reader has ended it, and returns the cut.
func (b *Board) cutLog(reader int, from uint64) (uint64, error) {
	if err := b.lock(reader); err != nil {
		return 0, err
	}
	defer b.unlock()
	if cut := b.regs.cut.Load(); cut != from {
		return cut, nil
	}
	tail, last := b.regs.tail.Load(), b.regs.last
	if tail-from > uint64(len(b.log)) || last-from >= tail-from || last%8 != 0 {
		return 0, b.corruptLog("cut at %d, last record at %d, end %d", from, last, tail)
	}
	b.endBatch(last, tail)
	return tail, nil
}

// endBatch ends the batch with the record at last, the last one of the log, which ends at tail. No batch has it yet.
// The lock is held.
func (b *Board) endBatch(last, tail uint64) {
	*word(b.log, last) |= batchEnd
	b.regs.cut.Store(tail)
}

// readBatch copies the records from r.pos to the first batchEnd, which lies below cut, and returns the end of that
// record.
func (b *Board) readBatch(r *reader, cut uint64) (uint64, error) {
	if n := int(cut - r.pos); cap(r.bytes) < n {
		r.bytes = make([]byte, roundUp(n, 4096))
	}
	r.records = r.records[:0]
	free := r.bytes[:cap(r.bytes)]
	for pos := r.pos; pos != cut; {
		head := *word(b.log, pos)
		kind, value := byte(head), uint32(head>>32)
		pos += recordHeader
		switch kind {
		case transport.RecordCard, transport.RecordRetired:
			card := uint32(head) >> 12
			if int64(card) >= int64(b.cfg.Cards) {
				return 0, b.corruptLog("record of card %d of %d", card, b.cfg.Cards)
			}
			r.records = append(r.records, transport.Record{Kind: kind, Card: card, Gen: value,
				Chained: head&chained != 0})
		case transport.RecordResponse, transport.RecordResult:
			card := uint32(0)
			if kind == transport.RecordResult {
				card = uint32(head) >> 12
			}
			if value > transport.MaxRecord || uint64(roundUp(int(value), 8)) > cut-pos {
				return 0, b.corruptLog("payload of %d bytes, %d before the cut", value, cut-pos)
			}
			if int64(card) >= int64(b.cfg.Cards) {
				return 0, b.corruptLog("result of card %d of %d", card, b.cfg.Cards)
			}
			n := int(value)
			p := free[:n:n]
			free = free[n:]
			get(b.log, pos, p)
			r.records = append(r.records, transport.Record{Kind: kind, Card: card, Payload: p})
			pos += uint64(roundUp(n, 8))
		default:
			return 0, b.corruptLog("record of kind %d", kind)
		}
		if head&batchEnd != 0 {
			return pos, nil
		}
	}
	return 0, b.corruptLog("batch from %d has no end", r.pos)
}

// Close closes the log for all members. Only the first Close has an effect.
func (b *Board) Close(member int) error {
	if err := b.lock(member); err != nil {
		return err
	}
	defer b.unlock()
	b.own.closed[member] = true
	if b.regs.closed.Load() == 0 {
		b.regs.closed.Store(uint32(member) + 1)
	}
	return nil
}

// ClosedBy is the member that closed the log, -1 while it is open.
func (b *Board) ClosedBy() int {
	by := b.regs.closed.Load()
	if int64(by) > int64(b.cfg.closers()) {
		return -1 // a damaged word, for which Next has the error
	}
	return int(by) - 1
}

// isClosed reports whether the log is closed.
func (b *Board) isClosed() (bool, error) {
	by := b.regs.closed.Load()
	if int64(by) > int64(b.cfg.closers()) {
		return false, b.corruptLog("closed by member %d of %d", int64(by)-1, b.cfg.closers())
	}
	return by != 0, nil
}

// Drained reports that the log is closed and that the reader has read all of it.
func (b *Board) Drained(reader int) bool {
	return b.ClosedBy() >= 0 && b.cursor(reader).Load() == b.regs.tail.Load()
}
