package collective

import (
	"math/bits"
	"slices"
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

// reachTrial belongs to the lane's driver. All but times is the same on all members.
type reachTrial struct {
	impossible bool // found out
	classes    [reachClasses]reachClass
}

// reachClass is of allreduces of similar length.
type reachClass struct {
	number  int  // of allreduces since the last trial began
	between int  // how many there are between that and the next; 0 before the first has ended
	staged  bool // which way is faster
	// Member 0's: what those of the trial under way have taken, in picoseconds a byte, by way; 0: it was not measured.
	times [2][reachSamples]int64
}

const (
	// The first allreduces of a class are not compared, since caches are cold and memory is touched for the first time. Then
	// come so many in each way, by turns, so that all else that changes meets both. The next one tells what follows from them.
	reachWarmUp = 4
	// What takes milliseconds is told apart by fewer.
	reachSamples = 7
	longSamples  = 3
	longReach    = 16 << 20 // bytes
	// The next trial comes after the least number of allreduces where the last one has changed the way, and
	// after four times as many as before where it has not.
	leastBetween = 250
	mostBetween  = 16 * leastBetween
	// reachClasses are one for each doubling of the length, since what is faster can change within
	// a factor of four. The last one has all that are longer.
	reachClasses = 12
)

// samples are the allreduces of n bytes in each way that make a trial.
func samples(n int) int {
	if n >= longReach {
		return longSamples
	}
	return reachSamples
}

// trials are the allreduces of n bytes before what follows from a trial is told.
func trials(n int) int { return reachWarmUp + 2*samples(n) }

// class is that of allreduces of n bytes: below 256 KiB, 512 KiB, 1 MiB and so on.
func (t *reachTrial) class(n int) *reachClass {
	return &t.classes[min(bits.Len(uint(n/reachBytes/2)), reachClasses-1)]
}

// way is which one is faster.
func (c *reachClass) way() reachWay {
	if c.staged {
		return wayStaged
	}
	return wayReach
}

// asks counts an allreduce of n bytes, and reports that the members are to ask one another how it
// is to be done.
func (t *reachTrial) asks(n int) bool {
	c := t.class(n)
	i := c.number
	c.number++
	if i > trials(n) && c.number == trials(n)+c.between {
		c.number = 0
	}
	return reachWarmUp <= i && i <= trials(n) || !c.staged
}

// next is what member 0 wants of the allreduce of n bytes that it has counted last.
func (t *reachTrial) next(n int) reachWay {
	c := t.class(n)
	switch i := c.number - 1; {
	case reachWarmUp <= i && i < trials(n):
		return reachWay(i%2) | wayTimed
	case i == trials(n):
		return c.better(samples(n))
	}
	return c.way()
}

// told notes what member 0 wants of it.
func (t *reachTrial) told(n int, w reachWay) {
	switch c := t.class(n); {
	case c.number != trials(n)+1:
	case w != c.way():
		c.staged, c.between = !c.staged, leastBetween
	default:
		c.between = min(max(4*c.between, leastBetween), mostBetween)
	}
}

// took notes what an allreduce of n bytes has taken.
func (t *reachTrial) took(w reachWay, n int, d time.Duration) {
	c := t.class(n)
	c.times[w&wayReach][(c.number-1-reachWarmUp)/2] = max(1, int64(d)*1000/int64(n))
}

// better ends a trial, by the medians, since some allreduces meet other processes. The way that is not in use must be better by a tenth.
func (c *reachClass) better(samples int) reachWay {
	var median [2]int64
	for w := range c.times {
		slices.Sort(c.times[w][:samples])
		median[w] = c.times[w][samples/2]
	}
	c.times = [2][reachSamples]int64{}
	way := c.way()
	if used, other := median[way], median[way^wayReach]; other > 0 && other+other/10 < used {
		return way ^ wayReach
	}
	return way
}
