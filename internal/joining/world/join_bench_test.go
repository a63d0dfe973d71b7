package world

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkJoin measures how long ranks, all in this process, take to join a world over
// TCP on loopback, to agree on their first sum, and to leave: in all and for each rank.
func BenchmarkJoin(b *testing.B) {
	var files syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	for _, size := range []int{64, 128, 256, 512} {
		b.Run(fmt.Sprint("ranks=", size), func(b *testing.B) {
			if files.Cur < uint64(16*size) {
				b.Skipf("%d open files are allowed, about %d are needed", files.Cur, 16*size)
			}
			var joining, summing, leaving, cpu time.Duration
			var heap uint64
			for b.Loop() {
				l := newLauncher(b, size)
				worlds := make([]*World, size)
				spent := processorTime()
				began := time.Now()
				each(size, func(r int) {
					c := l.config(r, size, "tcp")
					c.Timeout = 50 * time.Second
					w, err := join(b.Context(), c, 1, quiet())
					if err != nil {
						b.Error(err)
						return
					}
					worlds[r] = w
				})
				if b.Failed() {
					b.FailNow()
				}
				joined := time.Now()
				cpu += processorTime() - spent
				each(size, func(r int) {
					if _, err := add(worlds[r], "x", 1); err != nil {
						b.Error(err)
					}
				})
				summed := time.Now()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = m.HeapAlloc
				each(size, func(r int) { worlds[r].Leave(limit) })
				joining, summing, leaving = joining+joined.Sub(began), summing+summed.Sub(joined),
					leaving+time.Since(summed)
			}
			per := func(d time.Duration, name string, unit time.Duration) {
				b.ReportMetric(float64(d)/float64(b.N)/float64(unit), name)
			}
			per(joining, "ms/join", time.Millisecond)
			per(joining/time.Duration(size), "us/join/rank", time.Microsecond)
			per(cpu/time.Duration(size), "us-cpu/join/rank", time.Microsecond)
			per(summing, "ms/first-sum", time.Millisecond)
			per(leaving, "ms/leave", time.Millisecond)
			b.ReportMetric(float64(heap)/1e6/float64(size), "MB/rank")
		})
	}
}

// processorTime is the processor time that this process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
