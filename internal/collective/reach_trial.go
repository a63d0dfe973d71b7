package collective

import "time"

// Whether one copy by the kernel or two through staging buffers are faster depends on the
// caches that the cores share, and on the length. So member 0 tries both now and then, by the number
// of the allreduce among those of similar length, and tells the others with each allreduce which way it is. No result depends
// on it.

// reachWay is how an allreduce is to be done, and whether member 0 looks at the clock.
type reachWay uint8

const (
	wayStaged reachWay = iota
	wayReach
	wayTimed = 2 // added
)

func (w reachWay) reach() bool { return w&wayReach != 0 }
func (w reachWay) timed() bool { return w&wayTimed != 0 }

// reachTrial belongs to the lane's driver. Only member 0's decides.
type reachTrial struct {
	impossible bool // found out; the same on all members
	classes    [deliveryClasses]reachClass
}

// reachClass is of allreduces of similar length.
type reachClass struct {
	number  int      // of allreduces since the last trial began
	between int      // how many there are between that and the next; 0 before the first has ended
	best    [2]int64 // the shortest of the trial under way, in picoseconds a byte, by way
	way     reachWay // which is faster
}

const (
	reachTrials = 4 // of each way, by turns
	// The next trial comes after the least number of allreduces where the last one has changed the way, and
	// after four times as many as before where it has not.
	leastBetween = 250
	mostBetween  = 16 * leastBetween
)

// next is the way of the next allreduce of n bytes.
func (t *reachTrial) next(n int) reachWay {
	c := &t.classes[deliveryClass(n)]
	i := c.number
	c.number++
	switch {
	case i < 2*reachTrials:
		return reachWay((i+1)%2) | wayTimed
	case i == 2*reachTrials:
		c.decide()
	}
	if c.number == 2*reachTrials+c.between {
		c.number = 0
	}
	return c.way
}

// took notes what an allreduce of n bytes has taken.
func (t *reachTrial) took(w reachWay, n int, d time.Duration) {
	best := &t.classes[deliveryClass(n)].best[w&wayReach]
	if each := max(1, int64(d)*1000/int64(n)); *best == 0 || each < *best {
		*best = each
	}
}

// decide ends a trial. The way that is not in use must be better by a tenth.
func (c *reachClass) decide() {
	used, other := c.best[c.way], c.best[c.way^wayReach]
	if other > 0 && other+other/10 < used {
		c.way ^= wayReach
		c.between = leastBetween
	} else {
		c.between = min(max(4*c.between, leastBetween), mostBetween)
	}
	clear(c.best[:])
}
