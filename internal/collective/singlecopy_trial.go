package collective

import (
	"math/bits"
	"time"

	"github.com/gorovod/gorovod/internal/trial"
)

// Whether one copy by the kernel or two through staging buffers are faster depends on the
// caches that the cores share, on how many ranks share a core, and on the length. So member 0 tries both, by the number
// of the allreduce among those of similar length, and tells the others which way to take. While staging is in use, the
// members ask one another only during a trial. No result depends on the way.
//
//	first trial   the ways of firstWays, then an allreduce that tells the verdict: so a new length gets its way.
//	later trials  a pair (the other way, then the one in use) every trialPace allreduces, so that a slow
//	              way costs little; the allreduce after the last pair's tells the verdict.
//
// Package trial explains trials.

// copyWay is how an allreduce is to be done, and whether member 0 looks at the clock.
type copyWay uint8

const (
	wayStaged copyWay = iota
	waySingle
	wayTimed = 2 // added
	wayClear = 4 // added to the first verdict: the other way is so slow that it need not be tried soon
)

func (w copyWay) single() bool { return w&waySingle != 0 }
func (w copyWay) timed() bool  { return w&wayTimed != 0 }

// copyTrial belongs to the lane's driver. All but times is the same on all members.
type copyTrial struct {
	impossible bool // found out
	classes    [copyClasses]copyClass
}

// copyClass is of allreduces of similar length.
type copyClass struct {
	judged  bool // the first trial has ended
	number  int  // of allreduces since the last trial ended
	between int  // allreduces from the end of a trial to the next one
	staged  bool // which way is in use
	// Member 0's, by way: what the allreduces of the trial under way have taken, in picoseconds a byte, and how many
	// were measured.
	times   [2][copySamples]int64
	samples [2]int
}

const (
	trialPace = 16
	// An allreduce that takes milliseconds is measured fewer times.
	copySamples = 7
	longSamples = 3
	longSingle  = 16 << 20 // bytes
	// After a trial that has changed the way the next one begins leastBetween allreduces later, and
	// after one that has not, four times as many as before.
	leastBetween = 250
	mostBetween  = 16 * leastBetween
	// copyClasses are one for each doubling of the length, since what is faster can change within
	// a factor of four. The last one has all that are longer.
	copyClasses = 12
)

// firstWays are a class's first trial. It begins by staging, because each of the staging buffers is cold at its first
// use, and measures that way when the last of them has been used.
var firstWays = [...]copyWay{
	wayStaged, wayStaged, wayStaged, waySingle | wayTimed, wayStaged, wayStaged | wayTimed, wayStaged | wayTimed,
}

// trial is what allreduce i of n bytes after the last trial is for: which way it takes and whether it is timed. The one
// at the end tells the verdict. asked: it matters for a class whose way is staging.
func (c *copyClass) trial(i, n int) (way copyWay, asked, end bool) {
	if !c.judged {
		if i == len(firstWays) {
			return 0, true, true
		}
		return firstWays[i], true, false
	}
	way = c.way()
	switch at := i - c.between; {
	case at == pairs(n)*trialPace:
		return 0, true, true
	case at < 0 || at%trialPace > 1:
		return way, false, false
	case at%trialPace == 0:
		way ^= waySingle
	}
	return way | wayTimed, true, false
}

// pairs are those of a later trial of allreduces of n bytes.
func pairs(n int) int {
	if n >= longSingle {
		return longSamples
	}
	return copySamples
}

// class is that of allreduces of n bytes: below 256 KiB, 512 KiB, 1 MiB and so on.
func (t *copyTrial) class(n int) *copyClass {
	return &t.classes[min(bits.Len(uint(n/singleBytes/2)), copyClasses-1)]
}

// way is the one in use.
func (c *copyClass) way() copyWay {
	if c.staged {
		return wayStaged
	}
	return waySingle
}

// asks counts an allreduce of n bytes, and reports that the members are to ask one another how it
// is to be done.
func (t *copyTrial) asks(n int) bool {
	c := t.class(n)
	_, asked, _ := c.trial(c.number, n)
	c.number++
	return asked || !c.staged
}

// next is what member 0 wants of the allreduce of n bytes that it has counted last.
func (t *copyTrial) next(n int) copyWay {
	c := t.class(n)
	way, _, end := c.trial(c.number-1, n)
	if end {
		return c.better()
	}
	return way
}

// told notes what member 0 wants of it.
func (t *copyTrial) told(n int, w copyWay) {
	c := t.class(n)
	if _, _, end := c.trial(c.number-1, n); !end {
		return
	}
	switch {
	case !c.judged && w&wayClear == 0:
		c.between = trialPace // so little was measured that the next trial follows soon
	case !c.judged || w&waySingle != c.way():
		c.between = leastBetween
	default:
		c.between = min(max(4*c.between, leastBetween), mostBetween)
	}
	c.judged, c.number, c.staged = true, 0, !w.single()
}

// took notes what an allreduce of n bytes has taken.
func (t *copyTrial) took(w copyWay, n int, d time.Duration) {
	c := t.class(n)
	way := w & waySingle
	if c.samples[way] < copySamples {
		c.times[way][c.samples[way]] = max(1, int64(d)*1000/int64(n))
		c.samples[way]++
	}
}

// better ends a trial, by the medians, since some allreduces meet other processes. The way that is not
// in use must be better by a tenth. A trial that could not measure both ways changes nothing.
func (c *copyClass) better() copyWay {
	used, samples := c.way(), c.samples
	c.samples = [2]int{}
	var median [2]float64
	for w, n := range samples {
		if n == 0 {
			return used
		}
		median[w] = float64(trial.Median(c.times[w][:n]))
	}
	way := copyWay(trial.Better(int(used), median, better))
	if !c.judged && median[way^waySingle] > 2*median[way] {
		way |= wayClear
	}
	return way
}
