package msgboard

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/transport"
)

// member is the board of every member but the coordinator.
type member struct {
	Config

	closedBy atomic.Int32 // -1 until the closed frame has come

	mu      sync.Mutex
	scratch []byte // of the frame that is being sent; guarded by mu
	posted  int    // bytes of Requests without credit
	closing bool   // this member has sent its close frame
	inbox   []byte // length-prefixed batch frames that Next has not seen, and the closed frame
	queued  int    // bytes of batches that have come and were not credited back
	late    []staleMark

	// The driver's.
	reading []byte             // what Next takes frames from; swapped with inbox
	unread  []byte             // the rest of reading
	records []transport.Record // of the last batch; payloads lie in reading
	taken   int                // bytes of batches that Next has returned and not credited
	spare   []staleMark        // swapped with late
	closed  bool
}

type staleMark struct{ slot, gen uint32 }

func newMember(c Config) *member {
	m := &member{Config: c}
	m.closedBy.Store(-1)
	return m
}

// Mark sends the mark and believes in it: if the slot has been retired, Stale
// will tell.
func (m *member) Mark(slot, gen uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scratch = appendPair(m.scratch[:0], kindMark, slot, gen)
	m.Pipe.Send(0, m.scratch)
	return true
}

func (m *member) MarkGroup(marks []transport.Mark) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scratch = appendPair(m.scratch[:0], kindMark, marks[0].Slot, marks[0].Gen)
	for _, k := range marks[1:] {
		m.scratch = binary.LittleEndian.AppendUint32(m.scratch, k.Slot)
		m.scratch = binary.LittleEndian.AppendUint32(m.scratch, k.Gen)
	}
	m.Pipe.Send(0, m.scratch)
	return true
}

func (m *member) Stale(f func(slot, gen uint32)) {
	m.mu.Lock()
	m.late, m.spare = m.spare[:0], m.late
	m.mu.Unlock()
	for _, s := range m.spare {
		f(s.slot, s.gen)
	}
}

func (m *member) Post(request []byte) bool {
	if len(request) > transport.MaxRecord {
		panic(fmt.Sprintf("msgboard: a request of %d bytes; the limit is %d", len(request), transport.MaxRecord))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	cost := 1 + len(request)
	if m.posted+cost > requestWindow {
		return false
	}
	m.posted += cost
	m.scratch = append(append(m.scratch[:0], byte(kindRequest)), request...)
	m.Pipe.Send(0, m.scratch)
	return true
}

func (m *member) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return
	}
	m.closing = true
	m.scratch = append(m.scratch[:0], byte(kindClose))
	m.Pipe.Send(0, m.scratch)
}

func (m *member) Closed() bool  { return m.closed }
func (m *member) ClosedBy() int { return int(m.closedBy.Load()) }

func (m *member) Next() []transport.Record {
	if len(m.unread) == 0 {
		m.mu.Lock()
		m.inbox, m.reading = m.reading[:0], m.inbox
		m.mu.Unlock()
		m.unread = m.reading
	}
	m.giveCredit()
	if len(m.unread) == 0 {
		return nil
	}
	n := number(m.unread)
	frame := m.unread[4 : 4+n]
	m.unread = m.unread[4+n:]
	if kind(frame[0]) == kindClosed {
		m.closed = true
		return nil
	}
	m.taken += len(frame)
	m.records = m.records[:0]
	for body := frame[1:]; len(body) > 0; {
		r, rest, err := cutRecord(body, m.Slots)
		if err != nil {
			panic(fmt.Sprintf("msgboard: a batch that was checked when it came: %v", err))
		}
		m.records = append(m.records, r)
		body = rest
	}
	return m.records
}

// giveCredit sends credit back once a fair part of the window has been taken,
// so that small batches cost no frame of their own.
func (m *member) giveCredit() {
	if m.taken < batchWindow/4 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queued -= m.taken
	m.scratch = appendNumber(m.scratch[:0], kindCredit, uint32(m.taken))
	m.Pipe.Send(0, m.scratch)
	m.taken = 0
}

func (m *member) Receive(from int, frame []byte) error {
	if from != 0 {
		return fmt.Errorf("board frame from member %d, which is not the coordinator", from)
	}
	k, body, err := split(frame, m.Slots)
	if err != nil {
		return err
	}
	if k == kindBatch {
		err = checkBatch(body, m.Slots)
	}
	if err == nil {
		m.mu.Lock()
		err = m.take(k, frame, body)
		m.mu.Unlock()
	}
	if err != nil {
		return err
	}
	m.Ring()
	return nil
}

// take puts a frame where the driver will find it. m.mu is held.
func (m *member) take(k kind, frame, body []byte) error {
	if m.closedBy.Load() >= 0 && k != kindCredit && k != kindStale {
		return fmt.Errorf("%v frame after the log was closed", k)
	}
	switch k {
	case kindBatch:
		if m.queued >= batchWindow {
			return fmt.Errorf("batch frame although %d bytes of batches wait; the window is %d", m.queued, batchWindow)
		}
		m.queued += len(frame)
		m.queue(frame)
	case kindClosed:
		by := number(body)
		if int64(by) >= int64(m.Size) {
			return fmt.Errorf("closed by member %d of %d", by, m.Size)
		}
		m.closedBy.Store(int32(by))
		m.queue(frame)
	case kindStale:
		slot, gen := pair(body)
		if int64(slot) >= int64(m.Slots) {
			return fmt.Errorf("stale mark of slot %d of %d", slot, m.Slots)
		}
		// At most one mark of a slot is under way, and Stale is called once per
		// round of the driver.
		if len(m.late) > 4*m.Slots {
			return fmt.Errorf("more than %d stale marks", 4*m.Slots)
		}
		m.late = append(m.late, staleMark{slot, gen})
	case kindCredit:
		n := number(body)
		if int64(n) > int64(m.posted) {
			return fmt.Errorf("credit for %d bytes, of %d posted", n, m.posted)
		}
		m.posted -= int(n)
	default:
		return fmt.Errorf("%v frame from the coordinator", k)
	}
	return nil
}

func (m *member) queue(frame []byte) {
	m.inbox = binary.LittleEndian.AppendUint32(m.inbox, uint32(len(frame)))
	m.inbox = append(m.inbox, frame...)
}

// What follows is the coordinator's part, and this member has none of it.

func (m *member) notCoordinator(call string) {
	panic(fmt.Sprintf("msgboard: %s on member %d, which is not the coordinator", call, m.Member))
}

func (m *member) Requests(func([]int, []byte)) { m.notCoordinator("Requests") }

func (m *member) Publish([]byte) bool {
	m.notCoordinator("Publish")
	return false
}

func (m *member) Acquire() (slot, gen uint32, ok bool) {
	m.notCoordinator("Acquire")
	return 0, 0, false
}

func (m *member) Retire(uint32) (marked []int, ok bool) {
	m.notCoordinator("Retire")
	return nil, false
}

func (m *member) Marked(uint32) []int {
	m.notCoordinator("Marked")
	return nil
}
