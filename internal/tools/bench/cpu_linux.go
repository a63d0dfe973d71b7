package bench

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/peercred"
)

// processorTime is how many seconds of processor time the ranks have used since they started, all of them together.
// Ranks that have ended count nothing.
func (c *contender) processorTime() (seconds float64) {
	for _, conn := range c.conns {
		pid, err := peerPid(conn)
		if err != nil {
			continue
		}
		var t unix.Timespec
		if unix.ClockGettime(clockOf(int32(pid)), &t) == nil {
			seconds += time.Duration(t.Nano()).Seconds()
		}
	}
	return seconds
}

// peerPid is the process at the other end of a control connection.
func peerPid(conn net.Conn) (pid int, err error) {
	peer, err := peercred.Of(conn.(*net.UnixConn))
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// clockOf is the kernel's clock of all threads of another process, to the nanosecond (clock_getcpuclockid).
func clockOf(pid int32) int32 {
	const scheduled = 2 // CPUCLOCK_SCHED
	return ^pid<<3 | scheduled
}
