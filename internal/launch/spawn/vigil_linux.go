package spawn

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// vigil waits for the end of a command beside its supervisor, because a stopped supervisor (SIGSTOP) reports nothing.
// If the command ends while the supervisor is stopped, vigil kills the supervisor, and reaps the command itself. It
// leaves a stopped supervisor alone while the command runs, because the supervisor may continue in time.
type vigil struct {
	process *process
	pidfd   *os.File
	over    chan struct{} // closed by end
	keeping sync.WaitGroup

	// Owned by the goroutine of keepVigil until end has returned.
	taken bool
	how   syscall.WaitStatus // if taken
	at    time.Time          // when the command ended; zero if vigil has not seen the end
}

// keepVigil begins a vigil over the command of p, whose supervisor has reported the pid. It returns nil if the kernel
// has no pidfds, or if the command has been reaped.
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

// readable reports whether the process of a pidfd has ended.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// watch runs after the command's end. It checks whether the supervisor is stopped, until the supervisor has reported
// the end.
func (v *vigil) watch() {
	look := time.NewTicker(VigilInterval)
	defer look.Stop()
	for {
		select {
		case <-v.over:
			return
		case <-look.C:
		}
		if supervisor := v.process.supervisor.Load(); isStopped(supervisor.Pid) {
			v.process.sweeps.RLock() // a sweep would reap the command, and how it ended would be lost
			defer v.process.sweeps.RUnlock()
			supervisor.Kill()
			awaitEnd(supervisor.Pid)
			v.how, v.taken = takeOrphan(v.process.pid)
			return
		}
	}
}

// end ends the vigil. It may be called again, and on a nil vigil.
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

// fate says how and when the command ended, if the vigil knows. Call it after end; a nil vigil knows nothing.
func (v *vigil) fate() (how syscall.WaitStatus, at time.Time, known bool) {
	if v == nil {
		return 0, time.Time{}, false
	}
	return v.how, v.at, v.taken
}

// isStopped reports whether a signal has stopped a child. A debugger's stop does not count.
func isStopped(child int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, child, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// awaitEnd waits until a child has ended, and does not reap it.
func awaitEnd(child int) {
	for unix.Waitid(unix.P_PID, child, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// takeOrphan reaps a dead process that this process inherited from the dead parent.
func takeOrphan(pid int) (how syscall.WaitStatus, ok bool) {
	if pid == 0 {
		return 0, false
	}
	got, err := syscall.Wait4(pid, &how, syscall.WNOHANG, nil)
	return how, err == nil && got == pid
}
