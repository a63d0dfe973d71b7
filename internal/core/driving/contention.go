package driving

import "time"

// A yield gives the core to the kernel, which lets the driver run again after all others that want the core. If one of
// these computes, it keeps the core for a time slice, some 1 to 4 ms, while the driver's operation takes microseconds.
// A driver that sleeps instead keeps its claim: when the bell rings, the kernel lets it run before a program that has
// computed meanwhile. With two programs that compute beside them on two cores, two ranks took 2 ms for an allreduce of
// 4 bytes with yields, and 0.15 ms with sleeps; four ranks 6 ms and 0.5 ms; two hosts of one rank 4.5 ms and 0.1 ms.
const (
	// slowYield is more than any driver needs between two yields, and less than a time slice.
	slowYield = 500 * time.Microsecond
	// fewestSleeps and mostSleeps bound how many sleeps follow a slow yield before a driver yields again. One slow
	// yield in mostSleeps adds some 4 µs to each.
	fewestSleeps = 16
	mostSleeps   = 1024
	// sharedPolls is the number of looks before such a sleep where ranks share cores or a look makes system calls.
	// With 20 looks it was the same between ranks on one host, and a third slower between hosts. Elsewhere there are
	// politePolls, which is before the first yield.
	sharedPolls = 2
)

// Contention is what the drivers of an engine have learned from their yields: whether programs that compute want the
// same cores. After a slow yield drivers sleep where they would have yielded, for a number of sleeps that doubles with
// each slow yield, and is halved by each wait that quick yields have ended. The zero value is that of an idle machine.
type Contention struct {
	sleeps int  // how many sleeps are left before a driver yields again
	last   int  // how many there were after the last slow yield, halved since
	quick  bool // the wait under way has had a yield, and none of its yields was slow
}

// Yielded notes a yield that took this long. It reports whether that was slow.
func (c *Contention) Yielded(took time.Duration) (slow bool) {
	if !SlowYield(took) {
		c.quick = true
		return false
	}
	c.quick = false
	c.last = min(max(fewestSleeps, 2*c.last), mostSleeps)
	c.sleeps = c.last
	return true
}

// SlowYield reports whether a yield that took this long has given the core to a program that computes.
func SlowYield(took time.Duration) bool { return took >= slowYield }

// found notes a look with progress.
func (c *Contention) found() {
	if c.quick {
		c.quick = false
		c.last /= 2
	}
}

// slept notes a sleep.
func (c *Contention) slept() {
	c.quick = false
	c.sleeps = max(0, c.sleeps-1)
}

// sleepsAt reports whether a driver is to sleep after that many looks without progress, because yields are slow.
func (c *Contention) sleepsAt(polls int, j Job) bool {
	switch {
	case c.sleeps == 0:
		return false
	case j.Spin && j.OneHost:
		return polls >= politePolls
	}
	return polls >= sharedPolls
}
