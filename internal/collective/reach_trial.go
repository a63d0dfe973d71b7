package collective

import (
	"math/bits"
	"time"
)

// Whether one copy by the kernel or two through staging buffers are faster depends on the
// caches that the cores share, on how many ranks share a core, and on the length. So member 0 tries both now and
// then, by the number of the allreduce among those of similar length, and tells the others which way it is to be. As long as
// that is staging, the members do not even ask one another. No result depends on it.

// reachWay is how an allreduce is to be done, and whether member 0 looks at the clock.
type reachWay uint8

const (
	wayStaged reachWay = iota
	wayReach
	wayTimed = 2 // added
)

func (w reachWay) reach() bool { return w&wayReach != 0 }
func (w reachWay) timed() bool { return w&wayTimed != 0 }

// reachTrial belongs to the lane's driver. All but best is the same on all members.
type reachTrial struct {
	impossible bool // found out
	classes    [reachClasses]reachClass
}

// reachClass is of allreduces of similar length.
type reachClass struct {
	number  int      // of allreduces since the last trial began
	between int      // how many there are between that and the next; 0 before the first has ended
	best    [2]int64 // member 0's: the shortest of the trial under way, in picoseconds a byte, by way
	way     reachWay // which is faster
}

const (
	reachTrials = 4 // of each way, by turns; the next allreduce tells what follows from them
	// The next trial comes after the least number of allreduces where the last one has changed the way, and
	// after four times as many as before where it has not.
	leastBetween = 250
	mostBetween  = 16 * leastBetween
	// reachClasses are one for each doubling of the length, since what is faster can change within
	// a factor of four. The last one has all that are longer.
	reachClasses = 12
)

// class is that of allreduces of n bytes: below 256 KiB, 512 KiB, 1 MiB and so on.
func (t *reachTrial) class(n int) *reachClass {
	return &t.classes[min(bits.Len(uint(n/reachBytes/2)), reachClasses-1)]
}

// asks counts an allreduce of n bytes, and reports that the members are to ask one another how it
// is to be done.
func (t *reachTrial) asks(n int) bool {
	c := t.class(n)
	i := c.number
	c.number++
	if i > 2*reachTrials && c.number == 2*reachTrials+c.between {
		c.number = 0
	}
	return i <= 2*reachTrials || c.way.reach()
}

// next is what member 0 wants of the allreduce of n bytes that it has counted last.
func (t *reachTrial) next(n int) reachWay {
	c := t.class(n)
	switch i := c.number - 1; {
	case i >= 0 && i < 2*reachTrials:
		return reachWay((i+1)%2) | wayTimed
	case i == 2*reachTrials:
		return c.better()
	}
	return c.way
}

// told notes what member 0 wants of it.
func (t *reachTrial) told(n int, w reachWay) {
	switch c := t.class(n); {
	case c.number != 2*reachTrials+1:
	case w != c.way:
		c.way, c.between = w, leastBetween
	default:
		c.between = min(max(4*c.between, leastBetween), mostBetween)
	}
}

// took notes what an allreduce of n bytes has taken.
func (t *reachTrial) took(w reachWay, n int, d time.Duration) {
	best := &t.class(n).best[w&wayReach]
	if each := max(1, int64(d)*1000/int64(n)); *best == 0 || each < *best {
		*best = each
	}
}

// better ends a trial. The way that is not in use must be better by a tenth.
func (c *reachClass) better() reachWay {
	used, other := c.best[c.way], c.best[c.way^wayReach]
	clear(c.best[:])
	if other > 0 && other+other/10 < used {
		return c.way ^ wayReach
	}
	return c.way
}
