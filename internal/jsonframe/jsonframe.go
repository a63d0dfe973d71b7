// Package jsonframe carries values between the parts of a job, over a proved connection:
// a frame is four bytes of length, big endian, and a value in JSON. The users (packages
// rendezvous and elastic) define the values.
package jsonframe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// headerSize is that of the length before each value.
const headerSize = 4

// Append adds the frame of v to p. A frame whose value has more than limit bytes is an
// error; the other end would refuse it.
func Append(p []byte, v any, limit int) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return p, err
	}
	return AppendBody(p, body, limit)
}

// AppendBody adds a frame whose body is made already, JSON or not.
func AppendBody(p, body []byte, limit int) ([]byte, error) {
	if len(body) > limit {
		return p, tooLong(len(body), limit)
	}
	return append(binary.BigEndian.AppendUint32(p, uint32(len(body))), body...), nil
}

// Read blocks until one frame has come, and puts its value into v, a pointer. The errors
// are ReadBody's, and one for a body that is not JSON.
func Read(r io.Reader, v any, limit int) error {
	body, err := ReadBody(r, limit)
	if err != nil {
		return err
	}
	return Decode(body, v)
}

// ReadBody blocks until one frame has come, and returns its body, which is the caller's.
// The error is io.EOF where r ends before a frame. No length above limit is believed: at
// most limit bytes are allocated, whatever comes.
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
