package bench

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

const (
	// fastBelow tells a machine's two modes apart by the result of twoCores. In the fast mode two threads have two
	// cores, and take as long as one thread. In the slow mode they have two hyperthreads of one core, and take one
	// and a half times to twice as long. A virtual machine may change its mode while it runs.
	fastBelow = 1.25

	coresTries = 8
	coresBytes = 8 << 10 // of an array: the two arrays of each of two threads fit into a first-level cache
	coresAdds  = 4000    // some 0.5 ms
)

// fast reports whether a round was in the machine's fast mode, by the results of twoCores before and after it.
func fast(before, after float64) bool {
	return before > 0 && before < fastBelow && after > 0 && after < fastBelow
}

// twoCores is how many times as long a fixed computation in the first-level cache takes on two threads at once as on
// one. It takes the least of some tries for each, because other work can only add time. It is 0 if two threads cannot
// run at once.
func twoCores() float64 {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	mine, others := newAdding(), newAdding()
	alone := mine.run()
	for range coresTries - 1 {
		alone = min(alone, mine.run())
	}
	// The other thread keeps running between the tries, so that both soon have a core.
	var try, ready atomic.Int32
	took := make(chan time.Duration, 1)
	go func() {
		for i := range int32(coresTries) {
			ready.Store(i + 1)
			for try.Load() <= i {
			}
			took <- others.run()
		}
	}()
	both := time.Duration(0)
	for i := range int32(coresTries) {
		for ready.Load() <= i {
		}
		try.Store(i + 1)
		t := max(mine.run(), <-took)
		if i == 0 || t < both {
			both = t
		}
	}
	return both.Seconds() / alone.Seconds()
}

// adding is the computation: one array is added to another.
type adding struct{ srcs [][]byte }

func newAdding() adding {
	return adding{[][]byte{make([]byte, coresBytes), make([]byte, coresBytes)}}
}

func (a adding) run() time.Duration {
	start := time.Now()
	for range coresAdds {
		reduce.Reduce(tensor.Float32, tensor.Sum, a.srcs[0], a.srcs, 1)
	}
	return time.Since(start)
}
