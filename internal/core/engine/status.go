package engine

import "fmt"

// Code says how an operation ended. The numbers are Horovod's, up to 5.
type Code int32

// The codes.
const (
	OK                Code = 0
	UnknownError      Code = 1
	PreconditionError Code = 2
	Aborted           Code = 3
	InvalidArgument   Code = 4
	InProgress        Code = 5
	StorageError      Code = 6 // a file cannot be written or read, or is damaged
)

// Error is how an operation failed.
type Error struct {
	Code   Code
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Reason: fmt.Sprintf(format, args...)}
}

// ErrNotInitialized is the answer to every operation before Init.
var ErrNotInitialized = &Error{PreconditionError, "Horovod has not been initialized; use hvd.init()."}

// shutDownText begins the reason of every operation that fails because of a shutdown.
const shutDownText = "Horovod has been shut down: a rank failed with an exception, or finished while others still " +
	"had operations to do. " +
	"If it was an exception, it stands in that rank's output before the first message of this kind."

// LeftText is the reason of operations that fail because a rank has left. first names that rank, and says how it left.
func LeftText(first string) string { return shutDownText + " The first to leave: " + first + "." }

func duplicateName(name string) *Error {
	return errorf(InvalidArgument, "Duplicate tensor name %q: an operation with the same name as another tensor that "+
		"is currently being processed was requested. "+
		"If you want to request another tensor, use a different tensor name.", name)
}
