package tcp

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper watches lent connections for what is no data, so that a rank that drives
// nothing hears of it, too: an inbound connection for its end, behind which the
// last words stand, and one that this rank has dialled for anything, since that
// direction is silent. What it sees, it says once, by stir. Data wakes it not.
type keeper struct {
	epoll *os.File // known to the runtime, which waits for it
	raw   syscall.RawConn

	mu      sync.Mutex
	watched map[uint64]*conn
	last    uint64
}

func newKeeper(track func(fd int, open bool)) (*keeper, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(fd, true) // os.NewFile goes by it
	k := &keeper{epoll: os.NewFile(uintptr(fd), "epoll"), watched: make(map[uint64]*conn)}
	if k.raw, err = k.epoll.SyscallConn(); err != nil {
		k.epoll.Close()
		return nil, err
	}
	track(fd, true)
	return k, nil
}

// run works until close.
func (k *keeper) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := k.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			k.mu.Lock()
			c := k.watched[eventNumber(&e)]
			k.mu.Unlock()
			if c != nil {
				c.stir()
			}
		}
	}
}

// add begins to watch fd, which is c's.
func (k *keeper) add(c *conn, fd int) (number uint64, err error) {
	k.mu.Lock()
	k.last++
	number = k.last
	k.watched[number] = c
	k.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT}
	if !c.inbound {
		e.Events |= unix.EPOLLIN
	}
	setEventNumber(&e, number)
	controlErr := k.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &e) })
	if controlErr != nil {
		err = controlErr
	}
	if err != nil {
		k.forget(number)
	}
	return number, err
}

// remove ends it, before fd is closed.
func (k *keeper) remove(number uint64, fd int) {
	k.forget(number)
	k.raw.Control(func(epoll uintptr) { unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, fd, nil) })
}

func (k *keeper) forget(number uint64) {
	k.mu.Lock()
	delete(k.watched, number)
	k.mu.Unlock()
}

func (n *Network) closeKeeper() {
	if k := n.keeper; k != nil {
		k.raw.Control(func(epoll uintptr) { n.cfg.TrackFD(int(epoll), false) })
		k.epoll.Close()
	}
}

// An event's number lies in its two fields for the user's data.
func eventNumber(e *unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

func setEventNumber(e *unix.EpollEvent, number uint64) {
	e.Fd, e.Pad = int32(uint32(number)), int32(uint32(number>>32))
}
