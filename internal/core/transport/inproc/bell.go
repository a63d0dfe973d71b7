package inproc

import (
	"sync/atomic"
	"time"
)

// bell is a transport.Bell over a channel.
//
// A ring that finds the bell unarmed has no effect. Arm stores armed before the driver's last poll. So the ringer
// either sees armed, or has published its news before that poll.
type bell struct {
	armed atomic.Bool
	rings atomic.Uint32 // rings while armed
	wake  chan struct{} // capacity 1; may hold a token of an earlier sleep
	timer *time.Timer   // the driver's; stopped while it does not sleep
}

func newBell() *bell {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &bell{wake: make(chan struct{}, 1), timer: t}
}

func (b *bell) Arm() uint32 {
	b.armed.Store(true)
	return b.rings.Load()
}

func (b *bell) Disarm() { b.armed.Store(false) }

func (b *bell) Sleep(ticket uint32, d time.Duration) {
	defer b.armed.Store(false)
	if b.rings.Load() != ticket || d <= 0 {
		return
	}
	b.timer.Reset(d)
	defer b.timer.Stop()
	for b.rings.Load() == ticket {
		select {
		case <-b.wake:
		case <-b.timer.C:
			return
		}
	}
}

func (b *bell) Ring() {
	if !b.armed.Load() {
		return
	}
	b.rings.Add(1)
	select {
	case b.wake <- struct{}{}:
	default: // a token is there already
	}
}
