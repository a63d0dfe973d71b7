package world

import (
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/guard"
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
	text := w.Describe(w.Config.Rank) + " " + reason
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
	guard.Go("the report of a failure", func(error) {}, func() { w.session.Report(w.Describe(w.Config.Rank) + " reports: " + cause.Error()) })
}

// reported is a cause that the launcher knows already.
type reported struct{ error }
