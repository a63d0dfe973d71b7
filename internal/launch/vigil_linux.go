package launch

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// vigil waits for the end of a command beside its supervisor, which says nothing of it while it is stopped (SIGSTOP).
// It then kills the supervisor, and takes the dead command over. A supervisor that is stopped while its command runs
// is left alone: it may go on in time.
type vigil struct {
	process *process
	pidfd   *os.File
	over    chan struct{} // closed by end
	keeping sync.WaitGroup

	// Of the goroutine; for others once end has returned.
	taken bool
	how   syscall.WaitStatus // where taken
	at    time.Time          // when the command ended; zero where that was not seen
}

// keepVigil begins a vigil over the command of p, whose supervisor has told its pid. It is nil on a kernel that
// has no pidfds, and where the command has been reaped already.
func keepVigil(p *process) *vigil {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // PIDFD_NONBLOCK needs a newer kernel
		unix.Close(fd)
		return nil
	}
	v := &vigil{process: p, pidfd: os.NewFile(uintptr(fd), "pidfd"), over: make(chan struct{})}
	raw, err := v.pidfd.SyscallConn()
	if err != nil {
		v.pidfd.Close()
		return nil
	}
	v.keeping.Go(func() {
		if raw.Read(readable) == nil {
			v.at = time.Now()
			v.watch()
		}
	})
	return v
}

// readable is true of a pidfd whose process has ended.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// watch looks, now that the command has ended, whether the supervisor is stopped, until it has told of the end.
func (v *vigil) watch() {
	look := time.NewTicker(vigilInterval)
	defer look.Stop()
	for {
		select {
		case <-v.over:
			return
		case <-look.C:
		}
		if supervisor := v.process.supervisor.Load(); isStopped(supervisor.Pid) {
			v.process.sweeps.RLock() // a sweep would reap the command and tell nobody how it ended
			defer v.process.sweeps.RUnlock()
			supervisor.Kill()
			awaitEnd(supervisor.Pid)
			v.how, v.taken = takeOrphan(v.process.pid)
			return
		}
	}
}

// end ends the vigil. It may be called again, and on nil.
func (v *vigil) end() {
	if v == nil {
		return
	}
	select {
	case <-v.over:
	default:
		close(v.over)
		v.pidfd.Close()
	}
	v.keeping.Wait()
}

// fate is how the command has ended, and when, if the vigil has found out. It may be called on nil, after end.
func (v *vigil) fate() (how syscall.WaitStatus, at time.Time, known bool) {
	if v == nil {
		return 0, time.Time{}, false
	}
	return v.how, v.at, v.taken
}

// isStopped asks the kernel whether a child is stopped by a signal. A debugger's hold is none.
func isStopped(child int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, child, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// awaitEnd waits until a child has ended, and leaves it to be reaped by another.
func awaitEnd(child int) {
	for unix.Waitid(unix.P_PID, child, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// takeOrphan reaps a dead process whose parent has ended and left it to this one.
func takeOrphan(pid int) (how syscall.WaitStatus, ok bool) {
	if pid == 0 {
		return 0, false
	}
	got, err := syscall.Wait4(pid, &how, syscall.WNOHANG, nil)
	return how, err == nil && got == pid
}
