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
	classes    [deliveryClasses]struct {
		number uint64   // of allreduces so far
		best   [2]int64 // the shortest of the trial under way, in picoseconds a byte, by way
		staged bool     // which is faster
	}
}

const (
	reachEvery  = 256 // allreduces of a class
	reachTrials = 4   // of each way, by turns
)

// next is the way of the next allreduce of n bytes.
func (t *reachTrial) next(n int) reachWay {
	c := &t.classes[deliveryClass(n)]
	i := c.number % reachEvery
	c.number++
	if i < 2*reachTrials {
		return reachWay((i+1)%2) | wayTimed
	}
	if i == 2*reachTrials {
		if c.best[wayStaged] > 0 && c.best[wayReach] > 0 {
			c.staged = c.best[wayStaged] < c.best[wayReach]
		}
		clear(c.best[:])
	}
	if c.staged {
		return wayStaged
	}
	return wayReach
}

// took notes what an allreduce of n bytes has taken.
func (t *reachTrial) took(w reachWay, n int, d time.Duration) {
	best := &t.classes[deliveryClass(n)].best[w&wayReach]
	if each := max(1, int64(d)*1000/int64(n)); *best == 0 || each < *best {
		*best = each
	}
}
