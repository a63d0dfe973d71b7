package collective

import (
	"math/bits"
	"time"

	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/transport"
)

// What a member puts into shared memory, others read on their cores. Where the cores share
// a cache it is best left there; where they do not (on several sockets, or chips of one
// socket) each line would have to be fetched out of the writer's cache, which takes two to
// three times as long as writing past the caches and reading from memory. Which of the
// two holds cannot be asked, and on a virtual machine changes while a job runs. So
// allreduces try both ways now and then, by the numbers of their chunks, at the same time on all
// members, and each member keeps the way by which its own steps took less time. No result depends on it.

// delivery is how a member writes what others read. It belongs to the lane's driver.
type delivery struct {
	streamed bool // past the caches
	trials   [deliveryClasses]deliveryTrial
}

// deliveryTrial compares the two ways for allreduces of similar length, which alone can be
// compared: shorter ones find more in their caches.
type deliveryTrial struct {
	chunks uint64 // of the allreduces of this class so far; the same on all members
	// The shortest time of each step, in picoseconds a byte, by way.
	best [2][transport.NumPhases]int64
}

const (
	deliveryClasses = 4
	// Of each trialEvery chunks of a class the first trialChunks are written into the
	// caches and as many after them past these. Those that find the staging
	// buffers as the other way has left them are not looked at.
	trialEvery  = 512
	trialChunks = 8
	trialSkips  = 4
)

// deliveryClass is the class of an allreduce of n bytes: below 512 KiB, 4 MiB, 32 MiB, beyond.
func deliveryClass(n int) int {
	return min((bits.Len(uint(n)>>19)+2)/3, deliveryClasses-1)
}

// trial is what chunk number i of a class is for: whether it is written past the
// caches, and whether it is timed.
func (d *delivery) trial(i uint64) (streamed, timed bool) {
	i %= trialEvery
	if i >= 2*trialChunks {
		return d.streamed, false
	}
	return i >= trialChunks, i%trialChunks >= trialSkips
}

// took notes that a step of chunk number i of the class, of n bytes, has taken d.
func (d *delivery) took(class int, i uint64, p transport.Phase, n int, took time.Duration) {
	t := &d.trials[class]
	streamed, _ := d.trial(i)
	way := 0
	if streamed {
		way = 1
	}
	if each := int64(took) * 1000 / int64(n); t.best[way][p] == 0 || each < t.best[way][p] {
		t.best[way][p] = max(1, each)
	}
	if p == transport.Out && i%trialEvery == 2*trialChunks-1 {
		d.decide(t)
	}
}

// decide ends a trial. The way that is not in use must be better by a tenth.
func (d *delivery) decide(t *deliveryTrial) {
	var cached, streamed int64
	for p := range transport.NumPhases {
		cached += t.best[0][p]
		streamed += t.best[1][p]
	}
	if d.streamed {
		d.streamed = streamed < cached+cached/10
	} else {
		d.streamed = streamed+streamed/10 < cached
	}
	t.best = [2][transport.NumPhases]int64{}
}

// deliver copies src to dst, where others will read it.
func deliver(streamed bool, dst, src []byte) {
	if streamed {
		reduce.Stream(dst, src)
	} else {
		copy(dst, src)
	}
}
