package treeboard

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// member is the part that all members share. Leaders embed it.
type member struct {
	Config
	*tree

	mu   sync.Mutex
	gone bool // Quiesce has been called
	// marked is, by card, the generation of this member's mark that is under way; 0 if none is. Nil on the root's host,
	// where the board judges marks at once and Retire takes them back.
	marked []uint32
	stale  []transport.Mark // marks of generations that have ended, for TakeStale

	limit int // the most bytes of an operand
	// Guarded by mu.
	bound int               // BoundEarly
	put   []underway        // this member's operands on the host's board
	bytes int               // of these
	one   [1]transport.Mark // of MarkWith

	memory, connections atomic.Uint64 // EarlySent

	// The driver's.
	spare []transport.Mark // swapped with stale
	kept  []transport.Record
}

func newMember(c Config, t *tree) *member {
	m := &member{Config: c, tree: t, limit: earlyBytes(c.Early, len(c.Hosts)),
		put: make([]underway, 0, slots)}
	m.bound = m.limit
	if t.host > 0 {
		m.marked = make([]uint32, c.Cards)
	}
	if m.RingLocal == nil {
		m.RingLocal = func(int) {}
	}
	// A child host has no mailbox to be woken for.
	m.Up.SetWake(m.ringLocal)
	m.Down.SetWake(m.ringLocal)
	return m
}

// ringLocal wakes a member of this host.
func (m *member) ringLocal(i int) {
	switch {
	case i == m.local:
		m.Ring()
	case i < len(m.locals):
		m.RingLocal(i)
	}
}

func (m *member) ringAll() {
	for i := range m.locals {
		m.ringLocal(i)
	}
}

// ok reports whether err is nil; if not, the lane cannot go on.
func (m *member) ok(err error) bool {
	if err != nil {
		m.Abort(fmt.Errorf("member %d: %w", m.Member, err))
	}
	return err == nil
}

// mark marks all of marks or none, and returns the outcome.
func (m *member) mark(marks ...transport.Mark) board.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return board.Closed
	}
	return m.markLocked(marks)
}

// markLocked is mark. mu is held, and this member's end is in use.
func (m *member) markLocked(marks []transport.Mark) board.Result {
	r, err := m.Up.MarkFor(m.local, uint16(m.Member), marks)
	if !m.ok(err) {
		return board.Closed
	}
	if m.marked != nil && r != board.Stale {
		// The driver sees the end of this generation only afterwards, because it takes mu, too.
		for _, k := range marks {
			m.marked[k.Card] = k.Gen
		}
	}
	return r
}

// Mark returns true also if the lane is closed or has failed: the request fails anyway, so the caller need not post it.
func (m *member) Mark(card, gen uint32) bool {
	return m.afterMark(m.mark(transport.Mark{Card: card, Gen: gen}))
}

// MarkLast is Mark, because the coordinator's host alone ends batches.
func (m *member) MarkLast(card, gen uint32) bool { return m.Mark(card, gen) }

// MarkGroup treats a closed lane as Mark does.
func (m *member) MarkGroup(marks []transport.Mark) bool { return m.afterMark(m.mark(marks...)) }

// EarlyBytes implements transport.EarlyBoard.
func (m *member) EarlyBytes(wanted int) int {
	return min(m.limit, earlyBytes(min(max(wanted, 0), MostEarly), len(m.Hosts)))
}

// BoundEarly implements transport.EarlyBoard.
func (m *member) BoundEarly(bytes int) {
	m.mu.Lock()
	m.bound = min(max(bytes, 0), m.limit)
	m.mu.Unlock()
}

// MarkWith implements transport.EarlyBoard.
func (m *member) MarkWith(card, gen uint32, o *transport.Operand) bool {
	return m.afterMark(m.markWith(transport.Mark{Card: card, Gen: gen}, o))
}

func (m *member) markWith(mark transport.Mark, o *transport.Operand) board.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return board.Closed
	}
	put := m.bytes+len(o.Data) <= m.bound && m.Up.Put(m.local, mark, o)
	if put {
		m.put = append(m.put, underway{mark, len(o.Data)})
		m.bytes += len(o.Data)
	}
	m.one[0] = mark
	r := m.markLocked(m.one[:])
	switch {
	case put && (r == board.Stale || r == board.Closed):
		m.takeBack(mark.Card, mark.Gen)
	case put && len(m.locals) > 1:
		m.memory.Add(uint64(len(o.Data)))
	}
	return r
}

// takeBack frees the memory of this member's operand for a card, at generation gen if that is not 0. mu is held.
func (m *member) takeBack(card, gen uint32) {
	for i, u := range m.put {
		if u.mark.Card == card && (gen == 0 || u.mark.Gen == gen) {
			m.Up.Drop(m.local, card, gen)
			m.bytes -= u.bytes
			m.put = slices.Delete(m.put, i, i+1)
			return
		}
	}
}

// EarlySent implements transport.EarlyBoard.
func (m *member) EarlySent() (memory, connections uint64) {
	return m.memory.Load(), m.connections.Load()
}

func (m *member) afterMark(r board.Result) bool {
	if r == board.Completed {
		m.ringLocal(0)
	}
	return r != board.Stale
}

func (m *member) TakeStale(f func(card, gen uint32)) {
	m.mu.Lock()
	m.stale, m.spare = m.spare[:0], m.stale
	m.mu.Unlock()
	for _, s := range m.spare {
		f(s.Card, s.Gen)
	}
}

func (m *member) Post(request []byte) bool {
	posted := m.post(request)
	if posted {
		m.ringLocal(0)
	}
	return posted
}

// post puts a Request into this member's mailbox.
func (m *member) post(request []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return true
	}
	posted, err := m.Up.Post(m.local, request)
	return m.ok(err) && posted
}

func (m *member) Next() []transport.Record {
	for {
		records, err := m.Down.Next(m.local)
		if !m.ok(err) || len(records) == 0 {
			return nil
		}
		if records = m.resolve(records); len(records) > 0 {
			return records
		}
	}
}

// resolve clears this member's marks that the records complete or end, in the records' order. It returns the records
// without those that boards use among themselves.
func (m *member) resolve(records []transport.Record) []transport.Record {
	retired := 0
	m.mu.Lock()
	late := len(m.stale)
	for _, r := range records {
		switch r.Kind {
		case transport.RecordRetired:
			retired++
			m.takeBack(r.Card, r.Gen)
		case transport.RecordCard, transport.RecordResult:
			m.takeBack(r.Card, 0)
		}
		if m.marked == nil {
			continue
		}
		switch gen := &m.marked[r.Card]; r.Kind {
		case transport.RecordCard, transport.RecordResult:
			*gen = 0
		case transport.RecordRetired:
			if *gen == r.Gen && r.Gen != 0 {
				*gen = 0
				m.stale = append(m.stale, transport.Mark{Card: r.Card, Gen: r.Gen})
			}
		}
	}
	late = len(m.stale) - late
	m.mu.Unlock()
	if late > 0 {
		m.Ring() // the driver must call TakeStale
	}
	if retired == 0 {
		return records
	}
	m.kept = m.kept[:0]
	for _, r := range records {
		if r.Kind != transport.RecordRetired {
			m.kept = append(m.kept, r)
		}
	}
	return m.kept
}

func (m *member) Last(card uint32) int { return int(m.Down.Last(card)) }

func (m *member) Closed() bool { return m.Down.Drained(m.local) }

func (m *member) ClosedBy() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return -1
	}
	return m.Down.ClosedBy()
}

// Close also sends the leader a call, because no other rank waits for a Close. Anything else that a member does has no
// effect before the leader has submitted its own part, and then the leader drives.
func (m *member) Close() {
	if m.close() && m.local != 0 {
		m.Pipe.Send(m.locals[0], []byte{byte(kindCall)})
		m.Pipe.Flush()
	}
	m.ringLocal(0)
}

// close closes the host's own board, and reports whether it was open; the host's
// leader tells the parent.
func (m *member) close() (wasOpen bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone || m.Up.ClosedBy() >= 0 {
		return false
	}
	return m.ok(m.Up.Close(m.local))
}

func (m *member) Quiesce() {
	m.mu.Lock()
	m.gone = true
	m.mu.Unlock()
}

// Coordination is nil: only the root has it.
func (m *member) Coordination() transport.Coordination { return nil }

// Poller is nil: the leader of the host does the board's work.
func (m *member) Poller() transport.BoardPoller { return nil }

// Linked returns false: only leaders send and receive.
func (m *member) Linked(int) bool { return false }

func (m *member) Receive(from int, _ []byte) error {
	return fmt.Errorf("board frame from member %d to member %d, which leads no host", from, m.Member)
}
