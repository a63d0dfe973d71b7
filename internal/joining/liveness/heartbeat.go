package liveness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// firstBeat is the time that a rank must have waited before the first question.
const firstBeat = time.Second

// leastSilence is the least silence of a connection that counts: the kernel asks at most once a second.
const leastSilence = 2500 * time.Millisecond

// heartbeat finds out whether the other ranks are alive, but only while this rank waits for one:
//   - The launcher asks each rank's session, which answers by itself. A stopped process or a lost host does not answer.
//   - The kernels at both ends of each connection ask each other. That finds a cut between two hosts that both reach
//     the launcher.
//
// Silence for the limit ends the job with the name of the silent rank. A long computation is not silence.
type heartbeat struct {
	// limit is the most time from the first wait for a lost rank to the abort, if it is some 3.3 s or more. A smaller
	// one is exceeded, because patience is at least half of it: with a limit of 2 s it takes some 2.5 s. leastSilence
	// may add to that.
	limit  time.Duration
	every  time.Duration                                       // between two questions
	beat   func(context.Context) ([]rendezvous.Silence, error) // nil in a world of one
	links  []transport.Pulsed
	server string // the rank that serves instead of the launcher; a stopped one is a failure
	// mute returns the time for which the launcher's kernel has acknowledged nothing. A launcher that is stopped, for
	// example by Ctrl-Z, is no failure.
	mute     func() (silent time.Duration, known bool)
	describe func(rank int) string
	reason   func(rank int) string // what else is known of a silent rank
	abort    func(error)

	born    time.Time
	waited  atomic.Int64 // when waiting was last called, in ns since born
	waiters atomic.Int64 // the number of waits for messages, for which waiting is not called again and again

	ctx    context.Context // ends with close
	cancel context.CancelFunc

	mu      sync.Mutex
	running bool
	closed  bool
	wg      sync.WaitGroup
}

func newHeartbeat(limit time.Duration) *heartbeat {
	h := &heartbeat{limit: limit, every: max(time.Second/4, min(limit/10, 3*time.Second)), born: time.Now()}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// waiting notes that the driver has waited for d. It never blocks.
func (h *heartbeat) waiting(d time.Duration) {
	if h.limit <= 0 || d < firstBeat {
		return
	}
	h.waited.Store(int64(time.Since(h.born)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running || h.closed {
		return
	}
	h.running = true
	guard.In(&h.wg, "the heartbeat", h.abort, h.run)
}

// close ends the heartbeat, and waits for its end.
func (h *heartbeat) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
}

// pause waits for d, or until close.
func (h *heartbeat) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// run beats until nobody waits any more.
func (h *heartbeat) run() {
	defer func() {
		for _, p := range h.links {
			p.Rest()
		}
		h.mu.Lock()
		h.running = false
		h.mu.Unlock()
	}()
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	var mute time.Duration // of the launcher
	for h.wanted() {
		began := time.Now()
		silent, err := h.ask()
		if errors.Is(err, context.DeadlineExceeded) {
			mute += time.Since(began)
		} else {
			mute = 0
		}
		if cause := h.judge(silent, mute); cause != nil {
			h.abort(cause)
			return
		}
		select {
		case <-ticker.C:
		case <-h.ctx.Done():
			return
		}
	}
}

// wanted reports whether this rank waits. A waiting driver calls waiting about twice a second.
func (h *heartbeat) wanted() bool {
	return h.waiters.Load() > 0 || time.Since(h.born)-time.Duration(h.waited.Load()) < 3*time.Second
}

// ask asks the launcher once.
func (h *heartbeat) ask() ([]rendezvous.Silence, error) {
	if h.beat == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.every)
	defer cancel()
	return h.beat(ctx)
}

// patience is the part of the limit that is left for silence, after firstBeat and the time between two looks.
func (h *heartbeat) patience() time.Duration {
	return max(h.limit/2, h.limit-firstBeat-2*h.every)
}

// judge returns the loss that it finds; nil if there is none.
func (h *heartbeat) judge(silent []rendezvous.Silence, mute time.Duration) error {
	limit := fmt.Sprintf("GOROVOD_HEARTBEAT_SECONDS is %v: %.3g s of silence, and the time to notice it",
		h.limit.Seconds(), h.patience().Seconds())
	if len(silent) > 0 && silent[0].For >= h.patience() {
		s := silent[0]
		text := fmt.Sprintf("%s is lost: it has not answered for %.1f s", h.describe(s.Rank), s.For.Seconds())
		if why := h.reason(s.Rank); why != "" {
			text += ": " + why
		} else {
			text += ": its process is stopped, or its host cannot be reached"
		}
		return &rankLost{s.Rank, fmt.Sprintf("%s (%s)", text, limit)}
	}
	for _, p := range h.links {
		for _, s := range p.Beat(h.every) {
			if s.For >= max(h.patience(), leastSilence) {
				return &rankLost{s.Rank, fmt.Sprintf("%s is lost: nothing has come from its host (%s) for %.1f s, "+
					"not even acknowledgements: %s (%s)", h.describe(s.Rank), s.Addr, s.For.Seconds(),
					whyCut(s.Stuck), limit)}
			}
		}
	}
	if mute < h.patience() {
		return nil
	}
	if h.server != "" {
		return fmt.Errorf("%s, which serves the rendezvous, is lost: it has not answered for %.1f s: its process is "+
			"stopped, or its host cannot be reached (%s)", h.server, mute.Seconds(), limit)
	}
	if silent, known := h.mute(); !known || silent >= h.patience() {
		return fmt.Errorf("the launcher is lost: it has not answered for %.1f s: its host cannot be reached (%s)",
			mute.Seconds(), limit)
	}
	return nil
}

// usualSegment is the most data in a packet of Ethernet without jumbo frames.
const usualSegment = 1460

// whyCut says what may have happened to a connection whose packets of so many bytes are lost.
func whyCut(stuck int) string {
	why := "the link is cut, the host is down, or a firewall has forgotten the connection, see " +
		"GOROVOD_KEEPALIVE_SECONDS"
	if stuck > usualSegment {
		return fmt.Sprintf("packets of %d bytes are sent again and again. If smaller ones arrive, as in the job's "+
			"start, a switch on the way does not pass large packets: compare its MTU with that of the hosts' "+
			"interfaces. Otherwise %s", stuck, why)
	}
	return why
}

// prepareHeartbeat sets the heartbeat up. It is called before this rank waits for anything, so no goroutine runs yet.
func (m *Monitor) prepareHeartbeat(links []transport.Pulsed) {
	h := newHeartbeat(m.Config.Heartbeat)
	h.describe, h.reason, h.abort, h.links = m.Members.Describe, m.whySilent, m.Abort, links
	if m.Session != nil {
		h.beat, h.mute, h.server = m.Session.Beat, m.Session.Mute, m.server()
	}
	m.heartbeat = h
}

// whySilent examines a silent rank's process if it runs on this machine.
func (m *Monitor) whySilent(rank int) string {
	me, it := m.Members[m.Rank], m.Members[rank]
	if runtime.GOOS != "linux" || me.Machine.Processes == "" || me.Machine != it.Machine {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", it.PID))
	if err != nil {
		return ""
	}
	switch fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); {
	case len(fields) == 0:
	case fields[0] == "T":
		return "its process is stopped (SIGSTOP, or Ctrl-Z)"
	case fields[0] == "t":
		return "its process is stopped by a debugger"
	case fields[0] == "D":
		return "its process waits in the kernel, for a disk or a device"
	}
	return ""
}

// Attention is a wait for a message. The heartbeat runs while the wait lasts. Timers are reused, so a wait allocates
// none.
type Attention struct {
	h     *heartbeat
	timer *time.Timer
}

var attentions sync.Pool

// Attend begins a wait. Call Done at its end.
func (m *Monitor) Attend() *Attention {
	a, _ := attentions.Get().(*Attention)
	if a == nil {
		a = new(Attention)
		a.timer = time.AfterFunc(time.Hour, func() { a.h.waiting(firstBeat) })
		a.timer.Stop()
	}
	a.h = m.heartbeat
	a.h.waiters.Add(1)
	a.timer.Reset(firstBeat)
	return a
}

// Done ends the wait.
func (a *Attention) Done() {
	a.h.waiters.Add(-1)
	if a.timer.Stop() {
		attentions.Put(a)
	} // otherwise its function may be about to read h
}
