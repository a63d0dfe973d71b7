package hvd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport/p2p"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// Errors to test for with errors.Is. An error may match two of them, such as
// ErrUnknownSet and ErrInvalidArgument. When a context ends, the error is that of
// the context.
var (
	// ErrNotInitialized: Init has not been called.
	ErrNotInitialized = errors.New("this process is in no job: call hvd.Init() first")
	// ErrInvalidArgument: the operation was refused on this process alone.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrMismatch: the processes disagree about the operation. Later operations are not affected.
	ErrMismatch = errors.New("mismatch between ranks")
	// ErrAborted: the operation was not executed, because its process set has been
	// removed, or because there is no such reduction. Later operations are not affected.
	ErrAborted = errors.New("aborted")
	// ErrInternal: the job has failed, for example because a process has died, or
	// it has been shut down. Every later operation fails until Shutdown and Init. The
	// text after the operation's name is the same on all ranks.
	ErrInternal = errors.New("internal error")

	// ErrStorage: a file cannot be written or read, or is damaged, on one process or on several. All processes get the
	// error. Later operations are not affected.
	ErrStorage = errors.New("storage error")

	// ErrMessageTooLong: the next message does not fit into Recv's slice. The message
	// is kept for another Recv. An ErrInvalidArgument, too.
	ErrMessageTooLong = p2p.ErrTooLong

	// ErrSetExists: a process set of the same ranks is registered. An
	// ErrInvalidArgument, too.
	ErrSetExists error = engine.ErrSetExists
	// ErrUnknownSet: the process set is not registered, or no longer. An
	// ErrInvalidArgument, too.
	ErrUnknownSet error = engine.ErrUnknownSet
	// ErrSetsAreFixed: HOROVOD_DYNAMIC_PROCESS_SETS=1 was not set before Init.
	ErrSetsAreFixed error = inGo(process.ErrSetsAreFixed)

	// ErrTimelineNotEnabled: HOROVOD_TIMELINE was not set before Init.
	ErrTimelineNotEnabled = process.ErrTimelineNotEnabled
)

// opError is the error cause, and also matches the sentinel kind. Its text is that of cause.
type opError struct{ kind, cause error }

func (e *opError) Error() string   { return goNames().Replace(e.cause.Error()) }
func (e *opError) Unwrap() []error { return []error{e.kind, e.cause} }

// goNames replaces Python's names in the engine's texts by this package's.
var goNames = sync.OnceValue(func() *strings.Replacer {
	return strings.NewReplacer("hvd.init()", "hvd.Init()", "hvd.shutdown()", "hvd.Shutdown()",
		"hvd.start_timeline()", "hvd.StartTimeline()")
})

// spoken is an error with this package's names in its text.
type spoken struct{ error }

func (s spoken) Error() string { return goNames().Replace(s.error.Error()) }
func (s spoken) Unwrap() error { return s.error }

// inGo puts this package's names into an error's text.
func inGo(err error) error {
	if err == nil {
		return nil
	}
	return spoken{err}
}

// wrap gives an error of the engine the sentinel that callers test for.
func wrap(e *engine.Error) error {
	switch {
	case e == nil:
		return nil
	case e == engine.ErrNotInitialized:
		return ErrNotInitialized
	case e.Code == engine.InvalidArgument:
		return &opError{ErrInvalidArgument, e}
	case e.Code == engine.PreconditionError:
		return &opError{ErrMismatch, e}
	case e.Code == engine.Aborted:
		return &opError{ErrAborted, e}
	case e.Code == engine.StorageError:
		return &opError{ErrStorage, e}
	}
	return &opError{ErrInternal, e}
}

// named adds the operation's kind and name to err, unless err has the name already.
func named(t operation.Kind, name string, err error) error {
	what := strings.ToLower(t.Describe().Name)
	switch {
	case err == nil || name != "" && strings.Contains(err.Error(), strconv.Quote(name)):
		return err
	case t.Describe().Role == operation.Meeting: // the caller has given no name
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}

// wrapAny is wrap for functions that also return errors which are not the engine's.
func wrapAny(err error) error {
	switch e, ok := err.(*engine.Error); {
	case ok:
		return wrap(e)
	case errors.Is(err, process.ErrSetsAreFixed):
		return ErrSetsAreFixed
	}
	return err
}

// wrapMessage gives an error of Send or Recv the sentinel that callers test for.
func wrapMessage(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, ErrMessageTooLong):
		return &opError{ErrInvalidArgument, err}
	}
	return &opError{ErrInternal, err}
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
