package liveness

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// shutDown begins the errors of operations after a failure, as in Horovod.
const shutDown = "Horovod has been shut down"

// Fail reports that this rank's program has failed, and how ("raised ValueError: …"). Every operation of every rank
// fails with that text, and the launcher gets it. After a failure Fail does nothing, because this one is then a
// consequence.
func (m *Monitor) Fail(reason string) {
	if m.Failure() != "" {
		return
	}
	m.mu.Lock()
	told := m.departure
	m.mu.Unlock()
	if told != nil && strings.Contains(reason, shutDown) { // the program has not caught the error of a departure
		m.Session.ReportOn(told.rank, told.how+rendezvous.Unfinished)
		m.Abort(reported{errors.New(engine.LeftText(told.how))})
	} else {
		text := m.Members.Describe(m.Rank) + " " + printable.Text(reason)
		if m.Session != nil {
			m.Session.Report(text)
		}
		m.Abort(reported{fmt.Errorf("%s: %s", shutDown, text)})
	}
	m.Failure() // latches the failure with this rank's view, and keeps the record
}

// Failure says why the operations of this rank have ended; "" while they work, and after a shutdown.
func (m *Monitor) Failure() string {
	if e, _ := m.state(); e != nil {
		if f := e.Failure(); f != nil {
			return f.Reason
		}
	}
	return ""
}

// failed runs when the network aborts: it reports to the launcher, and keeps the record.
func (m *Monitor) failed(cause error) {
	m.report(cause)
	m.Record()
}

// report tells the launcher of a failure that this rank has found itself. It says nothing if the news came from
// another rank or from the launcher. It does not block.
func (m *Monitor) report(cause error) {
	if m.Session == nil || errors.As(cause, new(*transport.Report)) || errors.As(cause, new(reported)) {
		return
	}
	about := m.Rank
	if lost := (*rankLost)(nil); errors.As(cause, &lost) {
		about = lost.rank
	}
	guard.Go("the report of a failure", func(error) {},
		func() { m.Session.ReportOn(about, m.Members.Describe(m.Rank)+" reports: "+cause.Error()) })
}

// rankLost is a cause: the loss of another rank.
type rankLost struct {
	rank int
	text string
}

func (l *rankLost) Error() string { return l.text }

// agreeTime is the most time to wait for the words for a failure.
const agreeTime = 300 * time.Millisecond

// agree returns the words that all ranks use for a failure: those of the rank that told the launcher first.
func (m *Monitor) agree(cause, view string) string {
	if m.Session == nil {
		return cause + view
	}
	v := m.Session.Agree(rendezvous.Verdict{Cause: cause, View: view}, agreeTime)
	return v.Cause + v.View
}

// onVictim runs when operations of this rank fail because of an abort.
func (m *Monitor) onVictim() {
	if m.Session != nil {
		m.Session.ReportVictim(agreeTime)
	}
}

// onLeft returns the words that all ranks use after a rank has left while others had operations to do. They include the
// launcher's report on that rank's end, if that comes soon, and view, which says what this rank had to do. The first
// rank that asks decides for all. If the engine keeps process sets, the departure is no failure of the job, and nobody
// decides anything: see Departed.
func (m *Monitor) onLeft(rank int, view string) string {
	if m.Session == nil {
		return engine.LeftText(m.Members.Describe(rank)+" has shut down") + view
	}
	if e, _ := m.state(); e != nil && e.KeepsSets() {
		return m.Departed(rank) + view
	}
	v := m.Session.Agreed()
	if v == nil {
		how := m.howLeft(rank)
		m.Session.ReportOn(rank, how+rendezvous.Unfinished)
		its := m.Session.Agree(rendezvous.Verdict{Cause: engine.LeftText(how), View: view, Left: true}, agreeTime)
		v = &its
	}
	return v.Cause + v.View
}

// departure is the end of a rank for which operations of this rank have failed, although the engine goes on.
type departure struct {
	rank int
	how  string
}

// Departed returns the words for a failure of this rank's operations because another rank has left, after which the
// engine keeps process sets. They include the launcher's report on that rank's end, if that comes soon. Further calls
// for a rank return the same.
func (m *Monitor) Departed(rank int) string {
	m.mu.Lock()
	how := m.howDeparted[rank]
	m.mu.Unlock()
	if how == "" {
		how = m.howLeft(rank)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.howDeparted[rank] = how
	m.departure = &departure{rank, how}
	return engine.LeftText(how)
}

// howLeft says which rank has left, and how its process has ended, if the launcher says that soon.
func (m *Monitor) howLeft(rank int) string {
	limit := exitDelay
	if m.server() != "" { // no launcher watches that process
		limit = newsDelay
	}
	if d := m.awaitNews(rank, limit); d != nil {
		return d.String()
	}
	return m.Members.Describe(rank) + " has shut down"
}

// onVerdict runs when the launcher passes on that the operations of some rank have failed. It reaches ranks that the
// failed rank itself cannot reach.
func (m *Monitor) onVerdict(v rendezvous.Verdict) {
	e, left := m.state()
	if left {
		return
	}
	if by, over := e.ClosedBy(); over || by >= 0 && !e.KeepsSets() {
		return // the closed log ends all that it has to end
	}
	m.Abort(reported{errors.New(v.Cause)})
}

// reported is a cause that the launcher already knows.
type reported struct{ error }
