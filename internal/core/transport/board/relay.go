package board

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// Relay appends a batch that another board's Next has returned, and cuts behind it in the same step. So the batch stays
// whole for all readers. It returns false if there is no room now. Next wakes member 0 when there may be room. If the
// log is as long as the other board's, each batch finds room once all readers have read the records before it. Only
// Relay and End write to such a log.
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
		switch r.Kind {
		case transport.RecordResponse:
			b.append(responseRecord(len(r.Payload)), r.Payload)
			continue
		case transport.RecordResult:
			b.append(resultRecord(r.Card, len(r.Payload)), r.Payload)
		default:
			b.append(cardRecord(r.Kind, r.Card, r.Gen), nil)
		}
		if r.Kind != transport.RecordRetired {
			s, _ := b.card(r.Card)
			s.last = r.Last
		}
	}
	b.endBatch(b.regs.last, b.regs.tail.Load())
	return true, nil
}

// End closes a log to which Relay appends. by is the member that closed the other board's log.
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
