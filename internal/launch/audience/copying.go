package audience

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/cachesize"
	"github.com/gorovod/gorovod/internal/base/cgroup"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

const (
	// copyingTime is how long the rate of copying is measured.
	copyingTime = 100 * time.Millisecond
	// copyingStart is how long it may take to get the memory. If it takes longer, the rate stays unknown.
	copyingStart = 3 * time.Second
	// mostCopying is the most memory that the measurement takes, and copyingShare the part of the available memory.
	// Where that is less than twice the last cache, the rate stays unknown.
	mostCopying  = 1 << 30
	copyingShare = 8
	// copyingSlice is how much is added between two looks at the clock.
	copyingSlice = 256 << 10
)

// copyingRate is how many bytes of memory a second as many threads as there are ranks can copy all together, at most
// one for each processor; 0: unknown. As in gorovod bench, each thread adds an array to another one in place, which
// reads two bytes and writes one; copying reads one and writes one. The arrays are two to four times as large as the
// last cache.
func copyingRate(ranks int) float64 {
	threads := max(1, min(ranks, runtime.GOMAXPROCS(0)))
	cache := cachesize.Last()
	all := min(max(4*cache, 8<<20*threads), mostCopying)
	if all < 2*cache || all > availableMemory()/copyingShare {
		return 0
	}
	each := all / (2 * threads) / copyingSlice * copyingSlice
	if each == 0 {
		return 0
	}
	memory, err := unix.Mmap(-1, 0, 2*each*threads, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0
	}
	defer unix.Munmap(memory)
	adviseHuge(memory) // a page fault for each 4 KiB takes longer than the measurement
	rates := make([]float64, threads)
	began, late := time.Now(), atomic.Bool{}
	var touched, done sync.WaitGroup
	touched.Add(threads)
	for i := range threads {
		arrays := memory[2*each*i:][:2*each]
		done.Go(func() {
			for at := 0; at < len(arrays) && !late.Load(); at += os.Getpagesize() {
				arrays[at] = 0 // brings the page into memory
				if at%copyingSlice == 0 && time.Since(began) > copyingStart {
					late.Store(true)
				}
			}
			touched.Done()
			touched.Wait()
			if late.Load() {
				return
			}
			rates[i] = addingRate(arrays[:each], arrays[each:])
		})
	}
	done.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum * 3 / 2
}

// addingRate adds b to a for copyingTime, and returns how many bytes of a there were a second.
func addingRate(a, b []byte) float64 {
	n, began := 0, time.Now()
	for at := 0; time.Since(began) < copyingTime; at = (at + copyingSlice) % len(a) {
		srcs := [][]byte{a[at:][:copyingSlice], b[at:][:copyingSlice]}
		reduce.Reduce(tensor.Float32, tensor.Sum, srcs[0], srcs, 1)
		n += copyingSlice
	}
	return float64(n) / time.Since(began).Seconds()
}

// availableMemory is how many bytes of memory this process can have without making others swap; 0 if unknown.
func availableMemory() int {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	available := 0
	if _, text, ok := strings.Cut(string(info), "MemAvailable:"); ok {
		fmt.Sscan(text, &available)
	}
	available <<= 10
	if limit := cgroup.Of(os.DirFS("/")).Memory(); limit > 0 {
		available = min(available, int(limit))
	}
	return available
}
