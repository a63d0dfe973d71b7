package shm

import (
	"runtime"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// bell is a rank's own bell. Dekker's rule keeps a ring from being lost: the sleeper sets its flag and then polls, and
// the ringer publishes and then looks at the flag. So at least one of them sees the other. A ringer that finds the flag
// set clears it, so only one ringer pays for a wake-up.
type bell struct {
	head *header
	rank int
}

// The values of bellState.sleeping.
const (
	awake uint32 = iota
	asleep
	asleepAmid // asleep, and not woken by a new record of a log
)

// Arm announces that the driver is about to sleep.
func (b *bell) Arm() uint32 { return b.arm(asleep) }

// ArmAmid is Arm for a driver that has begun a collective in every lane.
func (b *bell) ArmAmid() uint32 { return b.arm(asleepAmid) }

var _ transport.AmidBell = (*bell)(nil)

func (b *bell) arm(how uint32) uint32 {
	s := b.head.bell(b.rank)
	ticket := s.word.Load()
	s.sleeping.Store(how)
	runtime.KeepAlive(b.head)
	return ticket
}

// Disarm cancels Arm.
func (b *bell) Disarm() {
	b.head.bell(b.rank).sleeping.Store(awake)
	runtime.KeepAlive(b.head)
}

// Sleep blocks until a ring after Arm or until d has passed, and disarms.
func (b *bell) Sleep(ticket uint32, d time.Duration) {
	futexWait(&b.head.bell(b.rank).word, ticket, d)
	b.Disarm()
}

// Ring wakes this rank's driver.
func (b *bell) Ring() { b.head.ring(b.rank) }

// sleeps reports whether the driver of a rank sleeps, or is about to.
func (h *header) sleeps(rank int) bool {
	defer runtime.KeepAlive(h)
	return h.bell(rank).sleeping.Load() != awake
}

// ringForRecord is ring for a new record of a log. It does not wake a driver that sleeps during collectives.
func (h *header) ringForRecord(rank int) {
	if h.bell(rank).sleeping.Load() != asleepAmid {
		h.ring(rank)
	}
	runtime.KeepAlive(h)
}

// ring wakes the driver of a rank. If the driver is awake, that costs one load.
func (h *header) ring(rank int) {
	s := h.bell(rank)
	if s.sleeping.Load() != awake && s.sleeping.Swap(awake) != awake {
		s.word.Add(1)
		if h.events != nil {
			h.events.wake(rank)
		} else {
			futexWake(&s.word)
		}
	}
	runtime.KeepAlive(h)
}
