package bench

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm is a page that two processes share, by which rank 0 wakes rank 1.
type alarm struct{ page []byte }

// newAlarm maps the file at path. Both processes create it if it is not there.
func newAlarm(path string) (*alarm, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &alarm{page}, nil
}

// word is the futex on which rank 1 sleeps; rung is the clock's time when rank 0 changed it.
func (a *alarm) word() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&a.page[0])) }
func (a *alarm) rung() *atomic.Int64  { return (*atomic.Int64)(unsafe.Pointer(&a.page[64])) }

// ring wakes rank 1, after rank 1 has had time to fall asleep.
func (a *alarm) ring() error {
	for start := time.Now(); time.Since(start) < asleepAfter; {
	}
	now, err := clock()
	if err != nil {
		return err
	}
	a.rung().Store(now)
	a.word().Add(1)
	unix.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(a.word())), futexWakeOp, 1)
	return nil
}

// sleep returns the nanoseconds from ring until rank 1 runs again.
func (a *alarm) sleep() (int64, error) {
	w := a.word()
	limit := unix.NsecToTimespec(int64(wakeLimit))
	for w.Load() == 0 {
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWaitOp, 0,
			uintptr(unsafe.Pointer(&limit)), 0, 0)
		if errno == unix.ETIMEDOUT {
			return 0, fmt.Errorf("no wake-up from rank 0 within %v", wakeLimit)
		}
	}
	now, err := clock()
	w.Add(^uint32(0))
	return now - a.rung().Load(), err
}

// clock is the monotonic clock, which all processes share.
func clock() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano(), err
}

const (
	futexWaitOp = 0
	futexWakeOp = 1
	// asleepAfter is how long a process may take to fall asleep.
	asleepAfter = 50 * time.Microsecond
	// wakeLimit is how long to wait for a process that may have died.
	wakeLimit = 10 * time.Second
)
