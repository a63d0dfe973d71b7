package world

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
func (w *World) Fail(reason string) {
	if w.Failure() != "" {
		return
	}
	text := w.Describe(w.Config.Rank) + " " + printable.Text(reason)
	if w.session != nil {
		w.session.Report(text)
	}
	w.abort(reported{fmt.Errorf("%s: %s", shutDown, text)})
	w.Failure() // latches it with this rank's view, and keeps the record
}

// Failure is why the operations of this rank have come to their end; "" while they
// have not, and after a shutdown.
func (w *World) Failure() string {
	if f := w.Engine.Failure(); f != nil {
		return f.Reason
	}
	return ""
}

// report tells the launcher of a failure that this rank has found itself: who has
// been told by another rank, or by the launcher, is silent. It does not block.
func (w *World) report(cause error) {
	if w.session == nil || errors.As(cause, new(*transport.Report)) || errors.As(cause, new(reported)) {
		return
	}
	about := w.Config.Rank
	if lost := (*rankLost)(nil); errors.As(cause, &lost) {
		about = lost.rank
	}
	guard.Go("the report of a failure", func(error) {}, func() { w.session.ReportOn(about, w.Describe(w.Config.Rank)+" reports: "+cause.Error()) })
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
func (w *World) agree(cause, view string) string {
	if w.session == nil {
		return cause + view
	}
	v := w.session.Agree(rendezvous.Verdict{Cause: cause, View: view}, agreeTime)
	return v.Cause + v.View
}

// onLeft is asked for what all ranks say after a rank has left while others had operations to do: what
// the launcher knows of its end, if that comes soon. The first rank that asks says it for all.
func (w *World) onLeft(rank int) string {
	if w.session == nil {
		return engine.LeftText(w.Describe(rank) + " has shut down")
	}
	v := w.session.Agreed()
	if v == nil {
		how := w.Describe(rank) + " has shut down"
		if d := w.awaitNews(rank); d != nil {
			how = d.String()
		}
		w.session.ReportOn(rank, how+" while other ranks had operations to do")
		its := w.session.Agree(rendezvous.Verdict{Cause: engine.LeftText(how), Left: true}, agreeTime)
		v = &its
	}
	return v.Cause + v.View
}

// onVerdict is told, by way of the launcher, that the operations of some rank have
// failed: the second way, for ranks that the first cannot reach.
func (w *World) onVerdict(v rendezvous.Verdict) {
	w.mu.Lock()
	e, left := w.Engine, w.left
	w.mu.Unlock()
	if left {
		return
	}
	if by, over := e.ClosedBy(); over || by >= 0 {
		return // the closed log ends what it ends
	}
	w.abort(reported{errors.New(v.Cause)})
}

// reported is a cause that the launcher knows already.
type reported struct{ error }
