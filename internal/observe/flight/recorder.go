// Package flight is a rank's flight recorder: it remembers the rank's last operations, and how far they came. Recording
// costs a few stores into memory that is allocated before. A rank makes a Dump on failure, on a stall, or for gorovod
// doctor --dump. Merge puts several ranks' dumps together, and names the rank that is missing while others wait.
package flight

import (
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Record is one operation of this rank. Times are nanoseconds since 1970; 0 for a step that has not happened.
type Record struct {
	Set   int     `json:"set,omitempty"` // process set
	Name  string  `json:"name"`
	Op    string  `json:"op"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape,omitempty"` // the first MaxDims lengths
	// Sequence is the operation's place in the agreed order of its process set, the same on all members; 0 before they
	// have agreed.
	Sequence  uint64 `json:"sequence,omitempty"`
	Submitted int64  `json:"submitted"`
	Agreed    int64  `json:"agreed,omitempty"`  // all members have submitted it
	Started   int64  `json:"started,omitempty"` // its execution has begun
	Ended     int64  `json:"ended,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
}

// Phase says in a word how far the operation has come.
func (r *Record) Phase() string {
	switch {
	case r.Failed:
		return "failed"
	case r.Ended != 0:
		return "done"
	case r.Started != 0:
		return "executing"
	case r.Agreed != 0:
		return "agreed"
	}
	return "waiting"
}

// MaxDims is how many lengths of a shape are recorded.
const MaxDims = 6

// Entry is a Record as the ring keeps it: it has no allocated parts. Its owner keeps a pointer until the operation has
// ended. By then another operation may have taken its place, which Number shows.
type Entry struct {
	Number    uint64
	Set       int
	Name      string
	Op        operation.Kind
	DType     tensor.DType
	dims      int
	shape     [MaxDims]int64
	Sequence  uint64
	Submitted int64
	Agreed    int64
	Started   int64
	Ended     int64
	Failed    bool
}

// Recorder is the ring. It is not safe for concurrent use: the engine's lock, which every operation takes anyway,
// guards it.
type Recorder struct {
	ring []Entry
	next uint64
}

// NewRecorder makes a Recorder for the last n operations; with 0 it records nothing.
func NewRecorder(n int) *Recorder { return &Recorder{ring: make([]Entry, n)} }

// Begin takes the place of the oldest operation; nil if the Recorder records nothing. The caller fills in the
// operation's identity.
func (r *Recorder) Begin(shape []int64, at int64) *Entry {
	if len(r.ring) == 0 {
		return nil
	}
	e := &r.ring[r.next%uint64(len(r.ring))]
	r.next++
	*e = Entry{Number: r.next, Submitted: at, dims: min(len(shape), MaxDims)}
	copy(e.shape[:], shape)
	return e
}

// Records returns the operations, the oldest first.
func (r *Recorder) Records() []Record {
	n := uint64(len(r.ring))
	var out []Record
	for i := r.next - min(r.next, n); i < r.next; i++ {
		e := &r.ring[i%n]
		out = append(out, Record{Set: e.Set, Name: e.Name, Op: e.Op.String(), DType: e.DType.String(),
			Shape: append([]int64(nil), e.shape[:e.dims]...), Sequence: e.Sequence, Submitted: e.Submitted,
			Agreed: e.Agreed, Started: e.Started, Ended: e.Ended, Failed: e.Failed})
	}
	return out
}
