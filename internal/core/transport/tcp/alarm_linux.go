package tcp

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// alarm is the bell of a driver for which only its own process rings. The driver sleeps by edges.Sleep.
//
// No ring is lost: Arm stores armed before it takes the ticket, and Ring counts before it looks at armed. So either the
// ringer sees armed and writes to the descriptor, or the ticket counts its ring already, and the poll after Arm sees
// its news.
type alarm struct {
	armed atomic.Bool
	rings atomic.Uint32

	mu sync.RWMutex // held for reading while fd is used
	fd int          // an eventfd; -1 once closed
}

var _ transport.Alarm = (*alarm)(nil)

func newAlarm(track func(fd int, open bool)) (*alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	track(fd, true)
	return &alarm{fd: fd}, nil
}

// close gives up the descriptor. Later rings wake nobody.
func (a *alarm) close(track func(fd int, open bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	track(a.fd, false)
	unix.Close(a.fd)
	a.fd = -1
}

func (a *alarm) Arm() (ticket uint32) {
	a.armed.Store(true)
	return a.rings.Load()
}

func (a *alarm) Disarm() { a.armed.Store(false) }

func (a *alarm) Rung(ticket uint32) bool { return a.rings.Load() != ticket }

func (a *alarm) Sleep(ticket uint32, d time.Duration) {
	panic("tcp: a driver sleeps on the alarm beside the sockets")
}

// Ring costs two atomic operations if the driver is awake.
func (a *alarm) Ring() {
	a.rings.Add(1)
	if !a.armed.Load() {
		return
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.fd >= 0 {
		unix.Write(a.fd, one)
	}
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

func (a *alarm) FD() int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.fd
}

func (a *alarm) Clear() {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.fd >= 0 {
		var count [8]byte
		unix.Read(a.fd, count[:])
	}
}
