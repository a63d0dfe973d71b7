package collective

import (
	"math/bits"
	"time"

	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/trial"
)

// Members write data to shared memory, and others read it on their cores. If the cores share a cache, the data should
// stay there. If they do not (on several sockets, or chips of one socket), each line must come out of the writer's
// cache. That takes two to three times as long as writing past the caches and reading from memory. Nothing tells which
// case holds, and on a virtual machine it changes while a job runs. So allreduces try both ways now and then, by the
// numbers of their chunks, at the same time on all members. Each member keeps the way by which its own steps took less
// time. No result depends on it. Package trial explains trials.

// delivery decides how a member writes data that others read. It belongs to the lane's driver.
type delivery struct {
	streamed bool // past the caches
	trials   [deliveryClasses]deliveryTrial
}

// deliveryTrial compares the two ways for allreduces of similar length. Only these can be compared, because shorter
// ones find more data in their caches.
type deliveryTrial struct {
	chunks uint64 // the number of chunks of this class so far; the same on all members
	// The shortest time of each step, in picoseconds a byte, by way.
	best [2][transport.NumPhases]int64
}

const (
	deliveryClasses = 4
	// Among each trialEvery chunks of a class the trialCycles × trialCycle from trialFirst on are a trial. In a cycle
	// one staging buffer (transport.Shared.Depth is four) is written past the caches twice, and another one into them
	// twice. The second time is measured, because at the first time the buffer still has the traces of the other way.
	// All other chunks are written as before, so a slow way costs little.
	trialEvery  = 512
	trialFirst  = 8
	trialCycle  = 32
	trialCycles = 4
	// A way that is better by half is taken from the second cycle on. A way that is better by a tenth is taken at the
	// trial's end.
	clearlyBetter = 3. / 2
	better        = 11. / 10
)

// deliveryClass is the class of an allreduce of n bytes: below 512 KiB, 4 MiB, 32 MiB, beyond.
func deliveryClass(n int) int {
	return min((bits.Len(uint(n)>>19)+2)/3, deliveryClasses-1)
}

// trial says how chunk number i of a class is delivered: whether past the caches, and whether it is timed.
func (d *delivery) trial(i uint64) (streamed, timed bool) {
	at := int(i%trialEvery) - trialFirst
	if at < 0 || at >= trialCycles*trialCycle {
		return d.streamed, false
	}
	switch at % trialCycle {
	case 0:
		return true, false
	case 2:
		return false, false
	case 4:
		return true, true
	case 6:
		return false, true
	}
	return d.streamed, false
}

// took notes that a step of chunk number i of the class, of n bytes, has taken d.
func (d *delivery) took(class int, i uint64, p transport.Phase, n int, took time.Duration) {
	t := &d.trials[class]
	at := int(i%trialEvery) - trialFirst
	way := 0
	if at%trialCycle == 4 {
		way = 1
	}
	trial.Least(&t.best[way][p], max(1, int64(took)*1000/int64(n)))
	if p != transport.Out || at%trialCycle != 6 {
		return
	}
	switch cycle := at / trialCycle; {
	case cycle == trialCycles-1:
		d.decide(t, better)
		t.best = [2][transport.NumPhases]int64{}
	case cycle > 0:
		d.decide(t, clearlyBetter)
	}
}

// decide changes to the way that is not in use if that way is better by the margin.
func (d *delivery) decide(t *deliveryTrial, margin float64) {
	var took [2]float64
	for way := range took {
		for _, each := range t.best[way] {
			took[way] += float64(each)
		}
	}
	used := 0
	if d.streamed {
		used = 1
	}
	d.streamed = trial.Better(used, took, margin) == 1
}

// deliver copies src to dst, where others will read it.
func deliver(streamed bool, dst, src []byte) {
	if streamed {
		reduce.Stream(dst, src)
	} else {
		copy(dst, src)
	}
}
