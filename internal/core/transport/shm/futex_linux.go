package shm

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWakeOp   = 1
	futexWaitOp   = 9 // FUTEX_WAIT_BITSET, for its absolute deadline
	futexMatchAny = 0xffffffff
)

// futexWait blocks until *w is not old, somebody wakes w, or d has passed. The
// word may be shared between processes.
func futexWait(w *atomic.Uint32, old uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	end := now.Nano()
	if int64(d) > math.MaxInt64-end {
		d = time.Duration(math.MaxInt64 - end)
	}
	deadline := unix.NsecToTimespec(end + int64(d))
	for {
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWaitOp, uintptr(old),
			uintptr(unsafe.Pointer(&deadline)), 0, futexMatchAny)
		if errno != unix.EINTR { // signals of Go's runtime end no sleep
			return
		}
	}
}

// futexWake wakes all waiters on w.
func futexWake(w *atomic.Uint32) {
	unix.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWakeOp, math.MaxInt32)
}
