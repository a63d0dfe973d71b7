// Package jsonframe carries values between the parts of a job, over a proved connection. A frame is four bytes of
// length, big endian, and a value in JSON. The users (packages rendezvous and elastic) define the values.
package jsonframe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// headerSize is the size of the length before each value, in bytes.
const headerSize = 4

// Append adds the frame of v to p. A value of more than limit bytes is an error, because the other end would refuse the
// frame.
func Append(p []byte, v any, limit int) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return p, err
	}
	return AppendBody(p, body, limit)
}

// AppendBody adds a frame with a ready body, JSON or not.
func AppendBody(p, body []byte, limit int) ([]byte, error) {
	if len(body) > limit {
		return p, tooLong(len(body), limit)
	}
	return append(binary.BigEndian.AppendUint32(p, uint32(len(body))), body...), nil
}

// Read blocks until one frame has come, and puts its value into v, a pointer. Errors are ReadBody's, and one for a body
// that is not JSON.
func Read(r io.Reader, v any, limit int) error {
	body, err := ReadBody(r, limit)
	if err != nil {
		return err
	}
	return Decode(body, v)
}

// ReadBody blocks until one frame has come, and returns its body, which the caller owns. The error is io.EOF if r ends
// before a frame. A length above limit is refused, so at most limit bytes are allocated.
func ReadBody(r io.Reader, limit int) ([]byte, error) {
	var size [headerSize]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if int64(n) > int64(limit) {
		return nil, tooLong(int(n), limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("a frame that ends early: %w", err)
	}
	return body, nil
}

// Decode puts the value that is a frame's body into v, a pointer.
func Decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("a frame that is not JSON: %w", err)
	}
	return nil
}

func tooLong(n, limit int) error {
	return fmt.Errorf("a frame of %d bytes, at most %d are allowed", n, limit)
}
