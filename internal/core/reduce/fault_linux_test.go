package reduce

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// TestFaultIsRecovered lets a kernel read memory that is not mapped. The goroutine's stack grows between the fault and
// its recovery, so it moves with the kernel's frame on it.
func TestFaultIsRecovered(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(gone) }()
	recovered := make(chan any)
	go func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { recovered <- recover() }()
		defer deepen(1000)
		Reduce(tensor.Float32, tensor.Sum, make([]byte, 1<<16), [][]byte{gone, gone}, 1)
	}()
	if r := <-recovered; r == nil {
		t.Error("the fault was not told")
	}
}

// deepen makes the goroutine's stack larger than its first one.
func deepen(n int) int {
	var frame [64]int
	if n > 0 {
		frame[n%len(frame)] = deepen(n - 1)
	}
	return frame[n%len(frame)] + 1
}
