package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// message is the content of a header. Add a new one at the end, and raise version, because older ranks refuse it.
type message byte

const (
	messageData    message = 1 // one message of a Comm
	messageBoard   message = 2 // one frame of a board
	messageGoodbye message = 3 // no payload; the sender has closed its network in good order
	messageAbort   message = 4 // rank (4 bytes) and text of the first cause

	messageLaneClosed message = 5 // no payload; the sender has closed the lane

	lastMessage = messageLaneClosed
)

// A header precedes every message: kind (1 byte), 3 zero bytes, sequence (4), length of the payload (8), little-endian.
// The sequence counts a direction's messages from 0, and wraps. So a stream that gets out of step causes an error, and
// no wrong data.
const headerSize = 16

type header struct {
	kind     message
	sequence uint32
	length   uint64
}

func (h header) put(p []byte) {
	binary.LittleEndian.PutUint32(p, uint32(h.kind))
	binary.LittleEndian.PutUint32(p[4:], h.sequence)
	binary.LittleEndian.PutUint64(p[8:], h.length)
}

func parseHeader(p []byte) (h header, err error) {
	kind := binary.LittleEndian.Uint32(p)
	h = header{message(kind), binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint64(p[8:])}
	if kind < uint32(messageData) || kind > uint32(lastMessage) {
		return h, fmt.Errorf("message of unknown kind %#x", kind)
	}
	if (h.kind == messageGoodbye || h.kind == messageLaneClosed) && h.length != 0 {
		return h, fmt.Errorf("goodbye of %d bytes", h.length)
	}
	return h, nil
}

// brokenError is an error of a connection, not of the protocol on it.
type brokenError struct {
	error
	inside bool // within a message, where a rank that leaves in good order ends no connection
}

func (e brokenError) Unwrap() error { return e.error }

var errNoGoodbye = errors.New("the other end closed it without goodbye")

// readHeader and readPayload are io.ReadFull with a brokenError.
func readHeader(r io.Reader, p []byte) error  { return readFull(r, p, false) }
func readPayload(r io.Reader, p []byte) error { return readFull(r, p, true) }

func readFull(r io.Reader, p []byte, inside bool) error {
	n, err := io.ReadFull(r, p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errNoGoodbye
	}
	return brokenError{err, inside || n > 0}
}

// incoming reads one connection's messages.
type incoming struct {
	r        io.Reader
	sequence uint32
	header   [headerSize]byte
}

// next reads a header. The caller reads the payload.
func (in *incoming) next() (header, error) {
	if err := readHeader(in.r, in.header[:]); err != nil {
		return header{}, err
	}
	h, err := parseHeader(in.header[:])
	if err == nil && h.sequence != in.sequence {
		err = fmt.Errorf("message %d came where %d was due", h.sequence, in.sequence)
	}
	in.sequence++
	return h, err
}
