// Package liveness finds out which ranks of a world are alive, and which failed first. A Monitor gets the launcher's
// news of deaths, sees processes of its own host vanish, asks silent ranks (heartbeat), and lets ranks that wait for
// long ask one another why (package stall). It aborts the network with the cause, and lets all ranks agree on its
// words.
//
// It never joins, connects or moves data: packages world and connect do.
package liveness

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/joining/liveness/stall"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// newsDelay is how long a rank that has seen a peer vanish waits for the
// launcher's report, which knows the exit code or the signal.
const newsDelay = time.Second

// exitDelay is how long the other ranks wait for the launcher's report on a rank that has left in order, and is
// probably about to end. Between its goodbye and its end Python takes down its frameworks, which takes a second or two
// on busy cores.
const exitDelay = 3 * time.Second

// lookTime bounds how long the driver may take to finish what it can, before a rank that is gone aborts the network. A
// driver that hangs in a call of NCCL does not answer.
const lookTime = time.Second

// leeway is how long a rank that can do no more waits before it aborts because another one is gone. Meanwhile the last
// bytes of that rank come in, which the news may have overtaken, and the other ranks of this host finish what they can.
const leeway = 10 * time.Millisecond

// Options is the input of New.
type Options struct {
	Config  *config.Config // its knobs; the agreed ones are rank 0's
	Rank    int
	Members roster.Members
	// Session is nil in a world of one.
	Session *rendezvous.Session
	// Record keeps the record of the last operations. It does not block.
	Record func()
	// Aborted, if set, is called on any goroutine after each Abort of the network, to end calls that the network's
	// abort does not end. It does not block.
	Aborted func(cause error)
	Log     *slog.Logger
}

// Monitor watches the ranks of one generation. Its methods may be called on any goroutine.
//
//	New          deaths are taken note of
//	Connected    they abort the network, too; silence is noticed
//	Started      the engine's state tells failures from departures
//	Leave        nothing means anything any more
//	Close
type Monitor struct {
	Options
	heartbeat *heartbeat
	stall     *stall.Inspector // nil if the check is disabled

	mu      sync.Mutex
	network transport.Network // nil before Connected
	engine  *engine.Engine    // nil before Started
	deaths  map[int]rendezvous.Death
	ended   map[int]bool  // ranks that have left in order, and whose process has ended
	news    chan struct{} // closed and renewed at every death
	left    bool          // this rank leaves, so deaths mean nothing any more

	// How ranks have left for which operations have failed, though the engine goes on; and the last of them.
	howDeparted map[int]string
	departure   *departure
}

// New starts to watch.
func New(o Options) *Monitor {
	m := &Monitor{Options: o, deaths: make(map[int]rendezvous.Death), news: make(chan struct{}),
		ended: make(map[int]bool), howDeparted: make(map[int]string)}
	if o.Session != nil {
		o.Session.OnDeath(m.onDeath)
	}
	return m
}

// Connected takes the connections of this rank with the others.
func (m *Monitor) Connected(network transport.Network, messages transport.Pulsed) {
	m.mu.Lock()
	m.network = network
	m.mu.Unlock()
	links := []transport.Pulsed{messages}
	if p, ok := network.(transport.Pulsed); ok {
		links = append([]transport.Pulsed{p}, links...)
	}
	m.prepareHeartbeat(links)
	if !m.Config.StallCheckDisable {
		m.inspectStalls()
	}
}

// Hook connects the options of an engine with this Monitor.
func (m *Monitor) Hook(o *engine.Options) {
	o.Failed, o.Agree, o.Left, o.Victim = m.failed, m.agree, m.onLeft, m.onVictim
	o.Stalled = m.heartbeat.waiting
	if m.stall != nil {
		o.Stalled = func(oldest time.Duration) {
			m.heartbeat.waiting(oldest)
			m.stall.Check(oldest)
		}
	}
}

// Started takes the engine.
func (m *Monitor) Started(e *engine.Engine) {
	m.mu.Lock()
	m.engine = e
	m.mu.Unlock()
	if m.Session != nil {
		m.Session.OnLost(m.onLost)
		m.Session.OnVerdict(m.onVerdict)
	}
}

// Leave is called before this rank leaves: from then on, no death of another rank is a failure.
func (m *Monitor) Leave() {
	m.mu.Lock()
	m.left = true
	m.wake()
	m.mu.Unlock()
	if m.stall != nil {
		m.stall.Close()
	}
}

// Close stops all goroutines of the Monitor, and waits for them. Call it after Leave.
func (m *Monitor) Close() { m.heartbeat.close() }

// state returns the engine, if there is one, and whether this rank leaves.
func (m *Monitor) state() (e *engine.Engine, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine, m.left
}

// NextDeath returns a channel that is closed when the next rank dies; dead says that one has died already.
func (m *Monitor) NextDeath() (news <-chan struct{}, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news, len(m.deaths) > 0
}

// onDeath handles the launcher's news of a death.
func (m *Monitor) onDeath(d rendezvous.Death) {
	m.mu.Lock()
	_, known := m.deaths[d.Rank]
	if d.InOrder {
		m.ended[d.Rank] = true
	} else {
		m.deaths[d.Rank] = d
	}
	m.wake()
	m.mu.Unlock()
	if known || d.InOrder {
		return
	}
	m.lose(loss{d.Rank, reported{errors.New(d.String())}, d.Failed(), func(by int) bool { // it left in order
		return by >= 0 && d.Signal == 0 && (d.ExitCode == 0 || d.Rank == by)
	}})
}

// wake wakes those who wait for news. The caller holds mu.
func (m *Monitor) wake() {
	close(m.news)
	m.news = make(chan struct{})
}

// Vanished reports that the process of a local rank is gone.
func (m *Monitor) Vanished(rank, pid int, exit transport.Exit) {
	if m.awaitNews(rank, newsDelay) != nil || m.hasEnded(rank) {
		return // onDeath has acted
	}
	how, failed := "has died", false
	if status, known := exit(); known {
		d := rendezvous.Death{ExitCode: status.ExitStatus()}
		if status.Signaled() {
			d.Signal = int(status.Signal())
		}
		how, failed = d.How(), d.Failed()
	}
	m.lose(loss{rank, &rankLost{rank, m.Members.Describe(rank) + " " + how}, failed, func(by int) bool {
		return by >= 0 // ranks leave; should one have died instead, the launcher will tell
	}})
}

// loss is the news that a rank is gone.
type loss struct {
	rank   int
	cause  error
	failed bool // its process is known to have failed
	// inOrder reports whether the end is in order, given the rank that has closed the world's log (-1 for none). It
	// does not count if the engine keeps process sets.
	inOrder func(closedBy int) bool
}

// lose aborts because of a rank that is gone, after this rank has done all that needs nothing more of that one. It does
// nothing if the end is in order: then the closed logs end what they end, and ask for the cause. If the engine keeps
// process sets, the end is in order unless the process has failed, or an open set has that rank.
func (m *Monitor) lose(l loss) {
	e, _ := m.state()
	moot := func() bool {
		if _, left := m.state(); left || e == nil {
			return left
		}
		by, over := e.ClosedBy()
		switch {
		case over:
			return true
		case e.KeepsSets():
			return !l.failed && !e.Shares(l.rank)
		}
		return l.inOrder(by)
	}
	if moot() {
		return
	}
	if e != nil {
		e.LastLook(lookTime)
		m.heartbeat.pause(leeway)
		e.LastLook(lookTime)
		if moot() {
			return
		}
	}
	m.Abort(l.cause)
}

// hasEnded reports whether a rank is known to have left in order, and its process to have ended.
func (m *Monitor) hasEnded(rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended[rank]
}

// awaitNews waits for the launcher's report on a rank, at most limit. It returns nil if the rank's end is in order.
func (m *Monitor) awaitNews(rank int, limit time.Duration) *rendezvous.Death {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m.mu.Lock()
		d, ok := m.deaths[rank]
		news, over := m.news, m.left || m.ended[rank]
		m.mu.Unlock()
		if ok {
			return &d
		}
		if over {
			return nil
		}
		select {
		case <-news:
		case <-timer.C:
			return nil
		}
	}
}

// onLost handles the loss of the rendezvous. A rank that serves it may have left in order, with its goodbye still
// under way.
func (m *Monitor) onLost(err error) {
	if m.server() == "" {
		m.Abort(err)
		return
	}
	tick := time.NewTicker(newsDelay / 50)
	defer tick.Stop()
	for deadline := time.Now().Add(newsDelay); time.Now().Before(deadline); <-tick.C {
		e, left := m.state()
		if left {
			return
		}
		if e != nil {
			if by, over := e.ClosedBy(); over || by >= 0 && !(e.KeepsSets() && e.Shares(0)) {
				return
			}
		}
	}
	m.Abort(err)
}

// server names the rank that serves the rendezvous; empty if the launcher does.
func (m *Monitor) server() string {
	if m.Session == nil {
		return ""
	}
	return m.Session.ServedBy()
}

// Abort fails this rank's operations, and those of all ranks that it can reach. Before Connected it does nothing.
func (m *Monitor) Abort(cause error) {
	m.mu.Lock()
	network := m.network
	m.mu.Unlock()
	if network == nil {
		return
	}
	network.Abort(cause)
	if m.Aborted != nil {
		m.Aborted(cause)
	}
}
