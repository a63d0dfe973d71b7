package reduce

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor's time of this thread. It stands still while another process has the core.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
