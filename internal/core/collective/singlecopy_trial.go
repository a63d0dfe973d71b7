package collective

import (
	"math/bits"
	"time"

	"github.com/gorovod/gorovod/internal/core/trial"
)

// One copy by the kernel or two through staging buffers may be faster. That depends on the caches that the cores share,
// on how many ranks share a core, and on the length. So member 0 tries both, by the number of the allreduce among those
// of similar length, and tells the others which way to take. While staging is in use, the members exchange tables only
// during a trial. No result depends on the way.
//
//	first trial   the ways of firstWays, then an allreduce that tells the verdict.
//	later trials  a pair (the other way, then the one in use) every trialPace allreduces, so that a slow
//	              way costs little; the allreduce after the last pair's tells the verdict.
//
// Package trial explains trials.

// copyWay says how an allreduce is done, and whether member 0 times it.
type copyWay uint8

const (
	wayStaged copyWay = iota
	waySingle
	wayTimed = 2 // added
	wayClear = 4 // added to the first verdict: the other way is too slow to be tried again soon
)

func (w copyWay) single() bool { return w&waySingle != 0 }
func (w copyWay) timed() bool  { return w&wayTimed != 0 }

// copyTrial is that of the operations of one kind. It belongs to the lane's driver. All but times is the same on all
// members.
type copyTrial struct {
	classes [copyClasses]copyClass
}

// copyClass is a class of allreduces of similar length.
type copyClass struct {
	judged  bool // the first trial has ended
	number  int  // of allreduces since the last trial ended
	between int  // allreduces from the end of a trial to the next one
	staged  bool // staging is the way in use
	// Only member 0 uses these. By way: the times of the allreduces in the present trial, in picoseconds a byte, and
	// the number of them.
	times   [2][copySamples]int64
	samples [2]int
}

const (
	trialPace = 16
	// An allreduce that takes milliseconds is measured fewer times.
	copySamples = 7
	longSamples = 3
	longSingle  = 16 << 20 // bytes
	// If a trial has changed the way, the next one begins leastBetween allreduces later. If not, it begins after four
	// times as many as the last time.
	leastBetween = 250
	mostBetween  = 16 * leastBetween
	// copyClasses is the number of classes, one for each doubling of the length, because the faster way can change
	// within a factor of four. The last class has all longer allreduces.
	copyClasses = 12
)

// firstWays are a class's first trial. It begins with staging, because each staging buffer is cold at its first use. It
// measures staging after the last buffer has been used.
var firstWays = [...]copyWay{
	wayStaged, wayStaged, wayStaged, waySingle | wayTimed, wayStaged, wayStaged | wayTimed, wayStaged | wayTimed,
}

// trial returns the way of allreduce number i since the last trial, of n bytes, and whether it is timed. end: it tells
// the verdict. asked: it belongs to a trial, so the members exchange tables also in a class whose way is staging.
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

// pairs is the number of pairs in a later trial of allreduces of n bytes.
func pairs(n int) int {
	if n >= longSingle {
		return longSamples
	}
	return copySamples
}

// class returns the class of allreduces of n bytes: below 256 KiB, 512 KiB, 1 MiB and so on.
func (t *copyTrial) class(n int) *copyClass {
	return &t.classes[min(bits.Len(uint(n/singleBytes/2)), copyClasses-1)]
}

// way returns the way in use.
func (c *copyClass) way() copyWay {
	if c.staged {
		return wayStaged
	}
	return waySingle
}

// asks counts an allreduce of n bytes, and reports that the members must exchange tables for it.
func (t *copyTrial) asks(n int) bool {
	c := t.class(n)
	_, asked, _ := c.trial(c.number, n)
	c.number++
	return asked || !c.staged
}

// next is the way that member 0 wants for the last counted allreduce, which has n bytes.
func (t *copyTrial) next(n int) copyWay {
	c := t.class(n)
	way, _, end := c.trial(c.number-1, n)
	if end {
		return c.better()
	}
	return way
}

// told notes the way that member 0 wants for it.
func (t *copyTrial) told(n int, w copyWay) {
	c := t.class(n)
	if _, _, end := c.trial(c.number-1, n); !end {
		return
	}
	switch {
	case !c.judged && w&wayClear == 0:
		c.between = trialPace // too little was measured, so the next trial follows soon
	case !c.judged || w&waySingle != c.way():
		c.between = leastBetween
	default:
		c.between = min(max(4*c.between, leastBetween), mostBetween)
	}
	c.judged, c.number, c.staged = true, 0, !w.single()
}

// took notes the time of an allreduce of n bytes.
func (t *copyTrial) took(w copyWay, n int, d time.Duration) {
	c := t.class(n)
	way := w & waySingle
	if c.samples[way] < copySamples {
		c.times[way][c.samples[way]] = max(1, int64(d)*1000/int64(n))
		c.samples[way]++
	}
}

// better ends a trial. It compares medians, because other processes disturb some allreduces. The way that is not in use
// must be better by a tenth. A trial that could not measure both ways changes nothing.
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
