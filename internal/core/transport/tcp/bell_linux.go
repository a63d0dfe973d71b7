package tcp

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// edges is the bell of a driver to which connections are lent. Sleep ends when the alarm rings, or when one of the
// connections can be read or written again. The kernel notes such events at no cost for a driver that is awake.
//
// No readiness is lost: Arm forgets the events that the kernel has noted before, and the poll after Arm finds their
// data. That poll goes on until nothing more can be done, or calls goOn.
type edges struct {
	transport.Alarm
	more  bool     // the driver's: a poll has stopped before its end
	much  bool     // the driver's: it has looked for much since the last Bulk
	some  bool     // the driver's: it has looked for something else
	epoll *os.File // edge-triggered, Go's poller does not know it
	raw   syscall.RawConn

	// The driver's: functions that are made once, because each closure would be an allocation, and their data.
	forget, wait func(fd uintptr)
	events       [32]unix.EpollEvent
	polled       [2]unix.PollFd
	limit        unix.Timespec
}

// openBell makes the bell of Config.Bell, or of an alarm of its own. If Config.Bell is no transport.Alarm, no
// connection is lent.
func (n *Network) openBell() (err error) {
	a, shared := n.cfg.Bell.(transport.Alarm)
	switch {
	case shared:
	case n.cfg.Bell != nil:
		n.bell = n.cfg.Bell
		return nil
	default:
		own, err := newAlarm(n.cfg.TrackFD)
		if err != nil {
			return err
		}
		a, n.closeAlarm = own, own.close
	}
	if n.edges, err = newEdges(a, n.cfg.TrackFD); err == nil {
		n.bell = n.edges
		if n.keeper, err = newKeeper(n.cfg.TrackFD); err == nil {
			return nil
		}
	}
	n.closeBell()
	return err
}

func (n *Network) closeBell() {
	if e := n.edges; e != nil {
		e.raw.Control(func(fd uintptr) { n.cfg.TrackFD(int(fd), false) })
		e.epoll.Close()
	}
	if n.closeAlarm != nil {
		n.closeAlarm(n.cfg.TrackFD)
	}
}

func newEdges(a transport.Alarm, track func(fd int, open bool)) (*edges, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	e := &edges{Alarm: a, epoll: os.NewFile(uintptr(fd), "epoll")}
	if e.raw, err = e.epoll.SyscallConn(); err != nil {
		e.epoll.Close()
		return nil, err
	}
	track(fd, true)
	e.forget = func(fd uintptr) { unix.EpollWait(int(fd), e.events[:], 0) }
	e.wait = func(fd uintptr) {
		e.polled = [2]unix.PollFd{{Fd: int32(e.FD()), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		unix.Ppoll(e.polled[:], &e.limit, nil)
	}
	return e, nil
}

func (e *edges) Arm() (ticket uint32) {
	ticket = e.Alarm.Arm()
	e.more = false
	e.raw.Control(e.forget)
	return ticket
}

func (e *edges) Sleep(ticket uint32, d time.Duration) {
	defer e.Disarm()
	for until := time.Now().Add(d); d > 0 && !e.more && !e.Rung(ticket); d = time.Until(until) {
		e.limit = unix.NsecToTimespec(int64(d))
		if e.raw.Control(e.wait) != nil {
			time.Sleep(min(d, time.Millisecond)) // closed
			return
		}
		if e.polled[0].Revents != 0 {
			e.Clear()
		}
		if e.polled[1].Revents != 0 {
			return
		}
	}
}

// note notes what a lane's operations wait for after a poll.
func (e *edges) note(receiving []*dataIn, sending []*dataOut) {
	for _, i := range receiving {
		e.noteOne(i.inBulk())
	}
	for _, o := range sending {
		e.noteOne(o.inBulk())
	}
}

func (e *edges) noteOne(much bool) {
	e.much = e.much || much
	e.some = e.some || !much
}

// Bulk implements transport.BulkBell.
func (e *edges) Bulk() bool {
	bulk := e.much && !e.some
	e.much, e.some = false, false
	return bulk
}

// goOn notes that a poll has stopped before its end, so that the next Sleep returns at once.
func (e *edges) goOn() { e.more = true }

// watch adds a lent connection's descriptor.
func (e *edges) watch(fd int, inbound bool) (err error) {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	if !inbound {
		event.Events = unix.EPOLLOUT | unix.EPOLLET
	}
	controlErr := e.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &event) })
	return errors.Join(controlErr, err)
}

// unwatch ends the watching of fd. Call it before fd is closed.
func (e *edges) unwatch(fd int) {
	e.raw.Control(func(epoll uintptr) { unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, fd, nil) })
}
