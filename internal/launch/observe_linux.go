package launch

import (
	"math"
	"net"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// cutLoose takes from this process what its child would inherit of rank 0's process, besides stdin and stderr: open
// descriptors, at whose end the launcher may wait, and the cores to which the launcher has bound rank 0. It returns the
// id of the process at the other end of stdin.
func cutLoose() (pid int, err error) {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil { // older than Linux 5.11
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0, err
		}
		for _, f := range open {
			if fd, err := strconv.Atoi(f.Name()); err == nil && fd >= first {
				unix.CloseOnExec(fd)
			}
		}
	}
	runtime.LockOSThread() // the child inherits this thread's cores
	var all unix.CPUSet
	for i := range len(all) {
		all[i] = math.MaxUint
	}
	unix.SchedSetaffinity(0, &all) // the kernel leaves out cores that this process may not have
	peer, err := unix.GetsockoptUcred(0, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("the socket on stdin", err)
	}
	return int(peer.Pid), nil
}

// closeAfter closes conn when a process has ended. The end of a process usually closes conn's other end, but not if the
// process has forked a child that keeps it open.
func closeAfter(pid int, conn net.Conn) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		conn.Close()
	}
	if err != nil {
		return // older than Linux 5.3
	}
	go func() {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err != unix.EINTR {
				break
			}
		}
		conn.Close()
	}()
}
