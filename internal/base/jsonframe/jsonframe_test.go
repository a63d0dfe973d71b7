package jsonframe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

type value struct {
	A string
	B []int `json:",omitempty"`
}

func TestRoundTrip(t *testing.T) {
	var all []byte
	sent := []value{{A: "x"}, {B: []int{1, 2}}, {}}
	for _, v := range sent {
		var err error
		if all, err = Append(all, v, 100); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(all)
	for _, want := range sent {
		var got value
		if err := Read(r, &got, 100); err != nil || got.A != want.A || len(got.B) != len(want.B) {
			t.Fatalf("got %+v %v, want %+v", got, err, want)
		}
	}
	if err := Read(r, new(value), 100); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestLimits(t *testing.T) {
	long := value{A: strings.Repeat("a", 100)}
	if p, err := Append([]byte("before"), long, 50); err == nil || string(p) != "before" {
		t.Errorf("a long frame is made: %q %v", p, err)
	}
	frame, err := Append(nil, long, 200)
	if err != nil {
		t.Fatal(err)
	}
	if err := Read(bytes.NewReader(frame), new(value), 50); err == nil || !strings.Contains(err.Error(), "at most 50") {
		t.Errorf("a long frame is read: %v", err)
	}
	for i := range len(frame) {
		err := Read(bytes.NewReader(frame[:i]), new(value), 200)
		if err == nil || i > headerSize && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Errorf("%d of %d bytes: %v", i, len(frame), err)
		}
	}
	if err := Read(bytes.NewReader([]byte{0, 0, 0, 2, '{', '!'}), new(value), 200); err == nil ||
		!strings.Contains(err.Error(), "not JSON") {
		t.Errorf("what is not JSON is read: %v", err)
	}
}
