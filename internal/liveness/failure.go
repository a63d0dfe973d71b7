package liveness

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/printable"
	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/transport"
)

// shutDown is how Horovod begins what operations say after a failure.
const shutDown = "Horovod has been shut down"

// Fail says that this rank's program has failed, and how ("raised ValueError: …"):
// every operation of every rank fails with that, and the launcher is told. It does
// nothing after a failure: this one is a consequence then.
func (m *Monitor) Fail(reason string) {
	if m.Failure() != "" {
		return
	}
	text := m.Members.Describe(m.Rank) + " " + printable.Text(reason)
	if m.Session != nil {
		m.Session.Report(text)
	}
	m.Abort(reported{fmt.Errorf("%s: %s", shutDown, text)})
	m.Failure() // latches it with this rank's view, and keeps the record
}

// Failure is why the operations of this rank have come to their end; "" while they
// have not, and after a shutdown.
func (m *Monitor) Failure() string {
	if e, _ := m.state(); e != nil {
		if f := e.Failure(); f != nil {
			return f.Reason
		}
	}
	return ""
}

// failed is told of the network's abort: the launcher is, and the record is kept.
func (m *Monitor) failed(cause error) {
	m.report(cause)
	m.Record()
}

// report tells the launcher of a failure that this rank has found itself: who has
// been told by another rank, or by the launcher, is silent. It does not block.
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

// rankLost is a cause that another rank is.
type rankLost struct {
	rank int
	text string
}

func (l *rankLost) Error() string { return l.text }

// agreeTime bounds how long the words for a failure are waited for.
const agreeTime = 300 * time.Millisecond

// agree asks for the words that all ranks use for a failure: those of the rank that
// was the first to tell the launcher.
func (m *Monitor) agree(cause, view string) string {
	if m.Session == nil {
		return cause + view
	}
	v := m.Session.Agree(rendezvous.Verdict{Cause: cause, View: view}, agreeTime)
	return v.Cause + v.View
}

// onVictim is told that operations of this rank fail because of an abort.
func (m *Monitor) onVictim() {
	if m.Session != nil {
		m.Session.ReportVictim(agreeTime)
	}
}

// onLeft is asked for what all ranks say after a rank has left while others had operations to do: what
// the launcher knows of its end, if that comes soon. The first rank that asks says it for all.
func (m *Monitor) onLeft(rank int) string {
	if m.Session == nil {
		return engine.LeftText(m.Members.Describe(rank) + " has shut down")
	}
	v := m.Session.Agreed()
	if v == nil {
		how := m.Members.Describe(rank) + " has shut down"
		if d := m.awaitNews(rank); d != nil {
			how = d.String()
		}
		m.Session.ReportOn(rank, how+rendezvous.Unfinished)
		its := m.Session.Agree(rendezvous.Verdict{Cause: engine.LeftText(how), Left: true}, agreeTime)
		v = &its
	}
	return v.Cause + v.View
}

// onVerdict is told, by way of the launcher, that the operations of some rank have
// failed: the second way, for ranks that the first cannot reach.
func (m *Monitor) onVerdict(v rendezvous.Verdict) {
	e, left := m.state()
	if left {
		return
	}
	if by, over := e.ClosedBy(); over || by >= 0 {
		return // the closed log ends what it ends
	}
	m.Abort(reported{errors.New(v.Cause)})
}

// reported is a cause that the launcher knows already.
type reported struct{ error }
