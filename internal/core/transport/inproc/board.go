package inproc

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// boardMember is one member's transport.Board: the lane's board, with the bells that this member rings. An error of the
// board aborts the world.
type boardMember struct {
	network *network
	lane    *lane
	member  int
}

var _ transport.Board = (*boardMember)(nil)

// coordinator is the lane member that answers Requests.
const coordinator = 0

// ok reports whether err is nil; if not, the board cannot be used any more.
func (b *boardMember) ok(err error) bool {
	if err != nil {
		b.network.Abort(fmt.Errorf("rank %d: %w", b.network.rank, err))
	}
	return err == nil
}

// ringAll wakes every member that sleeps, because the log has a new record.
func (b *boardMember) ringAll() {
	for _, bell := range b.lane.bells {
		bell.Ring()
	}
}

// Mark returns true on a closed log, too: such a mark is never completed.
func (b *boardMember) Mark(card, gen uint32) bool {
	return b.marked(b.lane.board.Mark(b.member, card, gen))
}

func (b *boardMember) MarkLast(card, gen uint32) bool {
	return b.marked(b.lane.board.MarkLast(b.member, card, gen))
}

func (b *boardMember) MarkGroup(marks []transport.Mark) bool {
	return b.marked(b.lane.board.MarkGroup(b.member, marks))
}

func (b *boardMember) marked(result board.Result, err error) bool {
	if !b.ok(err) {
		return true
	}
	if result == board.Completed {
		b.ringAll()
	}
	return result != board.Stale
}

// TakeStale never calls f, because in one memory Mark's answer is final.
func (b *boardMember) TakeStale(func(card, gen uint32)) {}

func (b *boardMember) Post(request []byte) bool {
	posted, err := b.lane.board.Post(b.member, request)
	if !b.ok(err) {
		return false
	}
	if posted {
		b.lane.bells[coordinator].Ring()
	}
	return posted
}

func (b *boardMember) Next() []transport.Record {
	records, err := b.lane.board.Next(b.member)
	if !b.ok(err) {
		return nil
	}
	return records
}

func (b *boardMember) Last(card uint32) int { return int(b.lane.board.Last(card)) }

func (b *boardMember) Closed() bool { return b.lane.board.Drained(b.member) }

func (b *boardMember) Close() {
	if b.ok(b.lane.board.Close(b.member)) {
		b.ringAll()
	}
}

func (b *boardMember) ClosedBy() int { return b.lane.board.ClosedBy() }
