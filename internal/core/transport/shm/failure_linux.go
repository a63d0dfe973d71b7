package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// failure is the reason for which the ranks cannot share memory. It travels between them, so that all give the same
// reason.
type failure struct {
	rank  int    // the rank that failed
	text  string // valid UTF-8 of at most maxFailure bytes
	cause error  // on the rank where it happened, else nil
}

const maxFailure = 2 << 10

func (f *failure) Error() string { return fmt.Sprintf("rank %d: %s", f.rank, f.text) }

func (f *failure) Unwrap() error { return f.cause }

// asFailure returns err if it is a failure already, and otherwise a failure of rank.
func asFailure(rank int, err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{rank: rank, text: cutText(err.Error()), cause: err}
}

func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxFailure)], "") }

// failureHead is the status, the rank and the length of the text.
const failureHead = 1 + 4 + 2

// message encodes the failure for sending, after a status.
func (f *failure) message(status byte) []byte {
	p := make([]byte, 0, failureHead+len(f.text))
	p = binary.BigEndian.AppendUint32(append(p, status), uint32(f.rank))
	p = binary.BigEndian.AppendUint16(p, uint16(len(f.text)))
	return append(p, f.text...)
}

// readFailure reads a failure, after its status.
func readFailure(r io.Reader) (*failure, error) {
	var head [failureHead - 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[4:]))
	if size > maxFailure {
		return nil, fmt.Errorf("a failure of %d bytes, at most %d are allowed", size, maxFailure)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return &failure{rank: int(binary.BigEndian.Uint32(head[:])), text: cutText(string(text))}, nil
}
