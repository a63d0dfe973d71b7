package engine

import (
	"sync/atomic"
	"time"
)

// clock tells when an operation was submitted, to within maxSleep: looking at the time for
// each of a thousand small tensors would take a noticeable part of what they take.
type clock struct {
	at    time.Time   // guarded by engine.mu
	left  int         // how often at may still be given; likewise
	stale atomic.Bool // the driver has slept since
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
