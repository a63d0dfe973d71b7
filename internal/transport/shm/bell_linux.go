package shm

import (
	"runtime"
	"time"
)

// bell is a rank's own bell. Between the sleeper and who rings it there is
// Dekker's agreement: the sleeper sets its flag and then polls, the other
// publishes and then looks at the flag, so at least one sees the other. Who finds
// the flag set clears it, so that one wake-up is paid for by one ringer only.
type bell struct {
	head *header
	rank int
}

// Arm announces that the driver is about to sleep.
func (b *bell) Arm() uint32 {
	s := b.head.bell(b.rank)
	ticket := s.word.Load()
	s.sleeping.Store(1)
	runtime.KeepAlive(b.head)
	return ticket
}

// Disarm takes the announcement back.
func (b *bell) Disarm() {
	b.head.bell(b.rank).sleeping.Store(0)
	runtime.KeepAlive(b.head)
}

// Sleep blocks until a ring after Arm or until d has passed, and disarms.
func (b *bell) Sleep(ticket uint32, d time.Duration) {
	futexWait(&b.head.bell(b.rank).word, ticket, d)
	b.Disarm()
}

// Ring wakes this rank's driver.
func (b *bell) Ring() { b.head.ring(b.rank) }

// ring wakes the driver of a rank; it costs one load if that is awake.
func (h *header) ring(rank int) {
	s := h.bell(rank)
	if s.sleeping.Load() != 0 && s.sleeping.Swap(0) != 0 {
		s.word.Add(1)
		if h.events != nil {
			h.events.wake(rank)
		} else {
			futexWake(&s.word)
		}
	}
	runtime.KeepAlive(h)
}
