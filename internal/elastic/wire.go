package elastic

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// Protocol is the version of what workers and driver say to each other.
const Protocol = 1

// maxFrame bounds every frame; the largest has the process sets of a job.
const maxFrame = 1 << 20

// Hello is what a worker says of itself inside the proof.
type Hello struct {
	Protocol int
	Worker   int
	PID      int
}

// Types of messages.
const (
	// From a worker.
	TypeReady = "ready" // it waits for a place: Number, Registration
	TypePong  = "pong"
	// From the driver.
	TypePlace   = "place"   // Number as in ready, Assignment
	TypeDismiss = "dismiss" // Text: why there is no place for the worker any more
	TypeUpdate  = "update"  // Stamp, Update
	TypePing    = "ping"
)

// Message is one frame: a type, and the fields that belong to it.
type Message struct {
	Type         string
	Number       uint64                   `json:",omitempty"` // counts a worker's registrations
	Registration *membership.Registration `json:",omitempty"`
	Assignment   *Assignment              `json:",omitempty"`
	Text         string                   `json:",omitempty"`
	Stamp        int64                    `json:",omitempty"` // seconds, greater with each update
	Update       membership.HostUpdate    `json:",omitempty"`
}

// Assignment is a place in an epoch, and where its ranks meet.
type Assignment struct {
	Epoch uint64
	Place membership.Place
	// Addrs are where the epoch's rendezvous may be, the likeliest first.
	Addrs []string
	// Sync says that not all members have the same state.
	Sync bool
	// Sets are the process sets of rank 0.
	Sets [][]int `json:",omitempty"`
}

// Encode returns the frame: four bytes of length, then JSON.
func Encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a %s frame of %d bytes, at most %d are allowed", m.Type, len(body), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return append(frame, body...), nil
}

// Decode reads one frame.
func Decode(r io.Reader) (m Message, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return m, fmt.Errorf("a frame of %d bytes, at most %d are allowed", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, fmt.Errorf("a frame that ends early: %w", err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("a frame that is not JSON: %w", err)
	}
	return m, nil
}

// EpochKey is the secret of one epoch. It is made on both sides of the job's, so that
// it never travels, and that a process of an earlier epoch can join nothing of a later one.
func EpochKey(key []byte, epoch uint64) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("gorovod elastic epoch"))
	m.Write(binary.BigEndian.AppendUint64(nil, epoch))
	return m.Sum(nil)
}
