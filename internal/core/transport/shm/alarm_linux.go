package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// events are eventfds, one for each rank, which all ranks of the host have open. They wake sleepers in place of
// futexes.
type events struct {
	trackFD func(fd int, open bool)

	mu  sync.RWMutex // held for reading while a descriptor is used
	fds []int        // by place; nil once closed
}

// createEvents makes the eventfds of n ranks.
func createEvents(n int) (fds []int, err error) {
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("eventfd for the bell of each of %d ranks: %w", n, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func newEvents(fds []int, trackFD func(fd int, open bool)) *events {
	for _, fd := range fds {
		trackFD(fd, true)
	}
	return &events{fds: fds, trackFD: trackFD}
}

// wake makes a rank's descriptor readable.
func (e *events) wake(place int) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.fds != nil {
		unix.Write(e.fds[place], one)
	}
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// fd is a rank's descriptor, -1 once closed.
func (e *events) fd(place int) int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.fds == nil {
		return -1
	}
	return e.fds[place]
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fd := range e.fds {
		e.trackFD(fd, false)
	}
	closeAll(e.fds)
	e.fds = nil
}

// alarm is a bell whose owner sleeps on its eventfd.
type alarm struct {
	bell
	polled [1]unix.PollFd // the driver's
}

var _ transport.Alarm = (*alarm)(nil)

func (a *alarm) Rung(ticket uint32) bool { return a.head.bell(a.rank).word.Load() != ticket }

func (a *alarm) FD() int { return a.head.events.fd(a.rank) }

func (a *alarm) Clear() {
	e := a.head.events
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.fds != nil {
		var count [8]byte
		unix.Read(e.fds[a.rank], count[:])
	}
}

// Sleep serves a driver that waits only for this bell.
func (a *alarm) Sleep(ticket uint32, d time.Duration) {
	defer a.Disarm()
	for until := time.Now().Add(d); d > 0 && !a.Rung(ticket); d = time.Until(until) {
		a.polled[0] = unix.PollFd{Fd: int32(a.FD()), Events: unix.POLLIN}
		limit := unix.NsecToTimespec(int64(d))
		if _, err := unix.Ppoll(a.polled[:], &limit, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if a.polled[0].Revents != 0 {
			a.Clear()
		}
	}
}
