package elastic

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/gorovod/gorovod/internal/base/jsonframe"
	"github.com/gorovod/gorovod/internal/base/shape"
	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// Protocol is the version of the messages between workers and driver.
const Protocol = 1

// maxFrame bounds every frame, in bytes. The largest frames have the process sets of a job.
const maxFrame = 1 << 20

// Shape differs between builds whose messages differ, even if nobody has raised Protocol.
var Shape = sync.OnceValue(func() string { return shape.Digest(Protocol, Hello{}, Message{}) })

// Hello is what a worker says about itself inside the proof.
type Hello struct {
	Protocol int
	Shape    string
	Worker   int
	PID      int
	TLS      bool `json:",omitempty"` // the worker begins TLS after the proof
}

// Types of messages.
const (
	// From a worker:
	TypeReady = "ready" // the worker waits for a place: Number, Registration
	TypePong  = "pong"
	TypeSaved = "saved" // Commit is on the disk: the worker has written it, or has found it there
	// From the driver:
	TypePlace   = "place"   // Number as in ready, Assignment
	TypeDismiss = "dismiss" // Text: why the worker gets no more places
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
	Commit       int64                    `json:",omitempty"`
	Stamp        int64                    `json:",omitempty"` // seconds, greater with each update
	Update       membership.HostUpdate    `json:",omitempty"`
}

// Assignment is a place in an epoch, and where its ranks meet.
type Assignment struct {
	Epoch uint64
	Place membership.Place
	// Addrs are the addresses at which the epoch's rendezvous may be, the likeliest first.
	Addrs []string
	// Sync says that the members may have different states.
	Sync bool
	// Sets are the process sets of rank 0.
	Sets [][]int `json:",omitempty"`
}

// Encode returns the frame.
func Encode(m Message) ([]byte, error) {
	frame, err := jsonframe.Append(nil, m, maxFrame)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Type, err)
	}
	return frame, nil
}

// Decode reads one frame.
func Decode(r io.Reader) (m Message, err error) {
	err = jsonframe.Read(r, &m, maxFrame)
	return m, err
}

// EpochKey derives the secret of one epoch from the job's. Both sides compute it, so it never travels, and a process
// of an earlier epoch can join nothing of a later one.
func EpochKey(key []byte, epoch uint64) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("gorovod elastic epoch"))
	m.Write(binary.BigEndian.AppendUint64(nil, epoch))
	return m.Sum(nil)
}
