package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// watch notices the end of the peers' processes by a pidfd for each. Go's poller watches the pidfds, so watch needs
// neither threads nor polling.
type watch struct {
	n     *Network
	mu    sync.Mutex
	fds   []int
	peers map[int]int // the pidfds by place
	pids  []int       // by place, copied when the ranks attached, because the segment can be damaged
	files []*os.File
	wg    sync.WaitGroup
	ended bool
}

// start watches all peers; peers in this process (tests) cannot die alone.
func (w *watch) start(n *Network) error {
	w.n = n
	for r := range n.cfg.Size {
		w.pids = append(w.pids, int(n.head.pid(r).Load()))
	}
	for r, pid := range w.pids {
		if r == n.cfg.Rank || pid == os.Getpid() {
			continue
		}
		if err := w.add(r, pid); err != nil {
			return fmt.Errorf("watch rank %d, process %d: %w", n.cfg.world(r), pid, err)
		}
	}
	return nil
}

func (w *watch) add(rank, pid int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errClosed
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		w.spawn(func() { w.n.cfg.Died(w.n.cfg.world(rank), pid, untold) })
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // PIDFD_NONBLOCK needs a newer kernel
		unix.Close(fd)
		return err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of rank %d", rank))
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return err
	}
	w.n.cfg.TrackFD(fd, true)
	if w.peers == nil {
		w.peers = make(map[int]int)
	}
	w.peers[rank] = fd
	w.fds, w.files = append(w.fds, fd), append(w.files, f)
	w.spawn(func() {
		if raw.Read(exited) == nil {
			w.n.cfg.Died(w.n.cfg.world(rank), pid, exitOf(raw))
		}
	})
	return nil
}

// spawn runs f on a goroutine; stop waits for it.
func (w *watch) spawn(f func()) { guard.In(&w.wg, "the watching of processes", w.n.Abort, f) }

// exited reports that the process of a pidfd has ended: then the pidfd is readable.
func exited(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	k, err := unix.Poll(p, 0)
	return err == nil && k > 0
}

// exitOf returns the Exit of a pidfd's process.
func exitOf(pidfd syscall.RawConn) transport.Exit {
	return func() (status syscall.WaitStatus, known bool) {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		err := pidfd.Control(func(fd uintptr) {
			known = unix.IoctlPidfdInfo(int(fd), &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
		})
		return syscall.WaitStatus(info.Exit_code), known && err == nil
	}
}

// untold is the Exit of a process that ended before its pidfd could be opened.
func untold() (status syscall.WaitStatus, known bool) { return 0, false }

// gone reports that the process of the rank at a place has ended. The driver calls it, and kill and stop.
func (w *watch) gone(place int) bool {
	fd, watched := w.peers[place]
	return watched && exited(uintptr(fd))
}

// kill ends the process of the rank at a place.
func (w *watch) kill(place int) {
	if fd, watched := w.peers[place]; watched {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// stop ends the watching. When it returns, no Died is running.
func (w *watch) stop() {
	w.mu.Lock()
	w.ended = true
	for i, f := range w.files {
		w.n.cfg.TrackFD(w.fds[i], false)
		f.Close()
	}
	w.fds, w.files = nil, nil
	w.mu.Unlock()
	w.wg.Wait()
}
