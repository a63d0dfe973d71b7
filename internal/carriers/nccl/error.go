package nccl

import (
	"errors"
	"fmt"
)

// Error is a failure of NCCL.
type Error struct {
	Call string // the function
	Code Result
	Text string // NCCL's words for the code
	Last string // NCCL's last message about the communicator; empty if there is none
}

func (e *Error) Error() string {
	if e.Last == "" {
		return fmt.Sprintf("%s: NCCL: %s (%d)", e.Call, e.Text, e.Code)
	}
	return fmt.Sprintf("%s: NCCL: %s (%d): %s", e.Call, e.Text, e.Code, e.Last)
}

// ErrAborted is the error of each call after Abort or Destroy.
var ErrAborted = errors.New("the NCCL communicator is no more")
