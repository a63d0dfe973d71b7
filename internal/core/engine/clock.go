package engine

import (
	"sync/atomic"
	"time"
)

// moment is a time of this process, in nanoseconds since 1970. It counts on from the wall clock's time at the process's
// start, so it never goes back, and knows nothing of a wall clock that has been set since. 0 stands for no time.
// Reading it takes half as long as time.Now, which reads two clocks; a small operation reads it three times.
type moment int64

var (
	started   = time.Now()
	startedAt = moment(started.UnixNano())
)

// thisMoment is the present.
func thisMoment() moment { return startedAt + moment(time.Since(started)) }

// since is the time from an earlier moment to m.
func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }

// time is m with a reading of the monotonic clock.
func (m moment) time() time.Time { return started.Add(m.since(startedAt)) }

// clock gives the time of a submission. That time may be old by at most half a second, the longest sleep of a driver,
// because reading the real clock for each of a thousand small tensors would take a noticeable part of their time.
type clock struct {
	at    moment      // guarded by engine.mu
	left  int         // how often at may still be given; guarded by engine.mu
	stale atomic.Bool // the driver has slept since the time at
}

// clockUses is how many submissions in a row may have the same time.
const clockUses = 32

// submitted is the time of a submission. The caller holds engine.mu.
func (c *clock) submitted() moment {
	if c.left == 0 || c.stale.Load() {
		c.stale.Store(false)
		c.at, c.left = thisMoment(), clockUses
	}
	c.left--
	return c.at
}
