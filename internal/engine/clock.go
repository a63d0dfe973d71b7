package engine

import (
	"sync/atomic"
	"time"
)

// clock gives the time of a submission. That time may be old by at most half a second, the longest sleep of a driver,
// because reading the real clock for each of a thousand small tensors would take a noticeable part of their time.
type clock struct {
	at    time.Time   // guarded by engine.mu
	left  int         // how often at may still be given; guarded by engine.mu
	stale atomic.Bool // the driver has slept since the time at
}

// clockUses is how many submissions in a row may have the same time.
const clockUses = 32

// submitted is the time of a submission. The caller holds engine.mu.
func (c *clock) submitted() time.Time {
	if c.left == 0 || c.stale.Load() {
		c.stale.Store(false)
		c.at, c.left = time.Now(), clockUses
	}
	c.left--
	return c.at
}
