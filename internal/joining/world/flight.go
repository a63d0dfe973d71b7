package world

import (
	"net"
	"os"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/joining/liveness"
	"github.com/gorovod/gorovod/internal/observe/flight"
)

// dumpLines is the number of lines of the record that go to stderr.
const dumpLines = 30

// flightDesk answers gorovod doctor --dump.
type flightDesk struct {
	l     *net.UnixListener // nil if the rank cannot listen
	close func()
}

// openFlightDesk starts to answer. If that is impossible, the rank answers nobody.
func (w *World) openFlightDesk(track func(fd int, open bool)) *flightDesk {
	d := &flightDesk{close: func() {}}
	l, err := flight.Listen()
	if err != nil {
		w.log.Debug("the flight recorder cannot be asked", "error", err)
		return d
	}
	fd := -1
	if raw, err := l.SyscallConn(); err == nil {
		raw.Control(func(n uintptr) { fd = int(n) })
	}
	told := func(open bool) {
		if track != nil && fd >= 0 {
			track(fd, open)
		}
	}
	told(true)
	ended := make(chan struct{})
	guard.Go("the flight recorder", func(error) {}, func() {
		defer close(ended)
		flight.Serve(l, w.Dump)
	})
	d.l, d.close = l, func() {
		told(false)
		l.Close()
		<-ended
	}
	return d
}

// Dump returns this rank's last operations. Safe on any goroutine.
func (w *World) Dump() *flight.Dump {
	p := w.Place
	sets := map[int][]int{}
	for _, s := range w.Engine.Sets() {
		if s.ID != 0 {
			sets[s.ID] = s.Ranks
		}
	}
	return &flight.Dump{At: liveness.Place(), Job: strings.Join(w.start.Peers, " "), Rank: p.Rank, Size: p.Size,
		Host: p.Host, PID: os.Getpid(), Network: w.Engine.Network(), Time: time.Now().UTC(), Failure: w.Failure(),
		Sets: sets, Records: w.Engine.Records()}
}

// keepRecord writes the record to the folder GOROVOD_DUMP_DIR. It does not wait for the disk.
func (w *World) keepRecord() {
	dir := w.Config.DumpDir
	if dir == "" || w.running.Load() == nil {
		return
	}
	d := w.Dump() // now, because pending operations fail next
	guard.In(&w.keeping, "the flight recorder", func(error) {}, func() {
		if dir != "-" {
			if _, err := d.Save(dir); err != nil {
				w.log.Warn("GOROVOD_DUMP_DIR: the flight record is lost", "error", err)
			}
			return
		}
		var b strings.Builder
		d.Text(&b, dumpLines)
		w.log.Warn("the last operations of this rank:\n" + strings.TrimSuffix(b.String(), "\n"))
	})
}
