package tcp

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeper watches lent connections: for events that the driver does not handle, and for frames while the rank does not
// drive.
//
//   - On an inbound data connection it waits for the end, which a last word may precede. Data does not wake it.
//   - On a data connection that this rank has dialled it waits for any byte, because that direction is silent.
//   - On a connection of board frames it waits for frames, too. WATCHING: if the driver has polled since
//     the last event, it takes the frames, and the keeper looks AWAY. Otherwise the keeper takes them.
//     AWAY: after lookAway it watches again, unless the driver has polled meanwhile.
//
// It recalls a connection on which anything but frames has come.
type keeper struct {
	epoll *os.File // Go's poller waits for it
	raw   syscall.RawConn

	mu      sync.Mutex
	watched map[uint64]*conn
	last    uint64

	away []*conn // run's: the connections that it does not watch now
}

// lookAway is how long the keeper does not watch a connection whose frames the driver takes.
const lookAway = 2 * time.Millisecond

func newKeeper(track func(fd int, open bool)) (*keeper, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(fd, true) // so that os.NewFile gives it to Go's poller
	k := &keeper{epoll: os.NewFile(uintptr(fd), "epoll"), watched: make(map[uint64]*conn)}
	if k.raw, err = k.epoll.SyscallConn(); err != nil {
		k.epoll.Close()
		return nil, err
	}
	track(fd, true)
	return k, nil
}

// run works until closeKeeper.
func (k *keeper) run() {
	events := make([]unix.EpollEvent, 64)
	n := 0
	wait := func(fd uintptr) bool {
		n, _ = unix.EpollWait(int(fd), events, 0)
		return n > 0
	}
	for {
		switch err := k.raw.Read(wait); {
		case err == nil:
			for _, e := range events[:n] {
				k.mu.Lock()
				c := k.watched[eventNumber(&e)]
				k.mu.Unlock()
				if c != nil {
					k.see(c, e.Events)
				}
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			k.lookAgain()
		default:
			return
		}
	}
}

// see deals with one event.
func (k *keeper) see(c *conn, events uint32) {
	i := c.frames
	switch {
	case i == nil || events&^unix.EPOLLIN != 0:
		c.recall()
	case i.driven():
		if len(k.away) == 0 {
			k.epoll.SetReadDeadline(time.Now().Add(lookAway))
		}
		k.away = append(k.away, c)
	default:
		if i.take() {
			i.lane.net.cfg.Wake()
		}
		k.rearm(c)
	}
}

// driven reports whether the driver has polled since the last call.
func (i *controlIn) driven() bool {
	before := i.polls
	i.polls = i.lane.polls.Load()
	return i.polls != before
}

// lookAgain watches those connections again that the driver has not polled since the last look.
func (k *keeper) lookAgain() {
	k.away = slices.DeleteFunc(k.away, func(c *conn) bool {
		if c.frames.driven() {
			return false
		}
		k.rearm(c)
		return true
	})
	next := time.Time{}
	if len(k.away) > 0 {
		next = time.Now().Add(lookAway)
	}
	k.epoll.SetReadDeadline(next)
}

// rearm watches c again after an event.
func (k *keeper) rearm(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		k.control(unix.EPOLL_CTL_MOD, c, c.watched, c.fd)
	}
}

// control tells the kernel for which events to watch fd, the descriptor of c.
func (k *keeper) control(operation int, c *conn, number uint64, fd int) (err error) {
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT}
	if !c.inbound || c.frames != nil {
		e.Events |= unix.EPOLLIN
	}
	setEventNumber(&e, number)
	controlErr := k.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), operation, fd, &e) })
	return errors.Join(controlErr, err)
}

// add begins to watch fd, the descriptor of c.
func (k *keeper) add(c *conn, fd int) (number uint64, err error) {
	k.mu.Lock()
	k.last++
	number = k.last
	k.watched[number] = c
	k.mu.Unlock()
	err = k.control(unix.EPOLL_CTL_ADD, c, number, fd)
	if err != nil {
		k.forget(number)
	}
	return number, err
}

// remove ends the watching of fd. Call it before fd is closed.
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
