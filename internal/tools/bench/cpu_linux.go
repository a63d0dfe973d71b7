package bench

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is how many seconds of processor time the ranks have used since they started, all of them together.
// Ranks that have ended count nothing.
func (c *contender) processorTime() (seconds float64) {
	for _, conn := range c.conns {
		raw, err := conn.(*net.UnixConn).SyscallConn()
		if err != nil {
			continue
		}
		raw.Control(func(fd uintptr) {
			peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			if err != nil {
				return
			}
			var t unix.Timespec
			if unix.ClockGettime(clockOf(peer.Pid), &t) == nil {
				seconds += time.Duration(t.Nano()).Seconds()
			}
		})
	}
	return seconds
}

// clockOf is the kernel's clock of all threads of another process, to the nanosecond (clock_getcpuclockid).
func clockOf(pid int32) int32 {
	const scheduled = 2 // CPUCLOCK_SCHED
	return ^pid<<3 | scheduled
}
