//go:build !linux

package tcp

import (
	"sync/atomic"
	"time"
)

// openBell takes the bell that it is given, or makes one.
func (n *Network) openBell() error {
	n.bell = n.cfg.Bell
	if n.bell == nil {
		n.bell = newBell()
	}
	return nil
}

func (n *Network) closeBell() {}

// bell is a transport.Bell for a driver for which only its own process rings.
//
// No ring is lost: Arm stores armed before it takes the ticket, and Ring counts before it looks at armed. So either the
// ringer sees armed and leaves a token, or the ticket counts its ring already, and the poll after Arm sees its news.
type bell struct {
	armed atomic.Bool
	rings atomic.Uint32
	token chan struct{} // capacity 1; may be left over from an earlier sleep
	timer *time.Timer   // the driver's; reused by every Sleep
}

func newBell() *bell {
	b := &bell{token: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	return b
}

func (b *bell) Arm() (ticket uint32) {
	b.armed.Store(true)
	return b.rings.Load()
}

func (b *bell) Disarm() { b.armed.Store(false) }

func (b *bell) Sleep(ticket uint32, d time.Duration) {
	defer b.armed.Store(false)
	if d <= 0 || b.rings.Load() != ticket {
		return
	}
	b.timer.Reset(d)
	defer b.timer.Stop()
	for b.rings.Load() == ticket {
		select {
		case <-b.token:
		case <-b.timer.C:
			return
		}
	}
}

func (b *bell) Ring() {
	b.rings.Add(1)
	if !b.armed.Load() {
		return
	}
	select {
	case b.token <- struct{}{}:
	default:
	}
}
