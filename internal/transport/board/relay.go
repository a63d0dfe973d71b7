package board

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/transport"
)

// Relay appends records that another board's Next has returned, and cuts behind
// them in one step: they are the next batch, whole, for all readers. False means
// that there is no room now; the wake function is called for member 0 when there
// may be. A log as long as the other board's has room for each of its batches
// once all readers have read what came before. A log that is relayed to is
// written by Relay and End alone.
func (b *Board) Relay(records []transport.Record) (bool, error) {
	if len(records) == 0 {
		return true, nil
	}
	need := 0
	for _, r := range records {
		need += messageSize(len(r.Payload))
	}
	if need > len(b.log) {
		return false, fmt.Errorf("board: a batch of %d bytes does not fit into the log of %d", need, len(b.log))
	}
	if err := b.lock(0); err != nil {
		return false, err
	}
	defer b.unlock()
	room, err := b.room(need)
	if err == nil && !room {
		b.regs.starved.Store(1) // as in Publish
		room, err = b.room(need)
	}
	if err != nil || !room {
		return false, err
	}
	for _, r := range records {
		if r.Kind == transport.RecordResponse {
			b.append(responseRecord(len(r.Payload)), r.Payload)
		} else {
			b.append(cardRecord(r.Kind, r.Card, r.Gen), nil)
		}
	}
	*word(b.log, b.regs.last) |= batchEnd
	b.regs.cut.Store(b.regs.tail.Load())
	return true, nil
}

// End closes a log that is relayed to; by is who closed the other board's.
func (b *Board) End(by int) error {
	if by < 0 || by >= b.cfg.closers() {
		return fmt.Errorf("board: closed by %d of %d", by, b.cfg.closers())
	}
	if err := b.lock(0); err != nil {
		return err
	}
	defer b.unlock()
	b.regs.closed.CompareAndSwap(0, uint32(by)+1)
	return nil
}
