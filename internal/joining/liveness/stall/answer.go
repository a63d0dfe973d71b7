package stall

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of an answer. They keep it below 64 KiB for all names.
const (
	maxEntries = 64
	maxName    = 200 // bytes
	maxMarks   = 1000
	markSize   = 4 // in bytes; an answer takes a third more
)

// OpJoin is the Op of a rank that has joined. Such a rank lacks no tensor of its process set, and its own wait is not
// a stall: the others still have data.
const OpJoin = "JOIN"

// Phase says how far an operation has come on a rank.
type Phase uint8

const (
	// Submitted: the other members can know of it. This rank does not know whether they have all submitted it, too.
	Submitted Phase = iota
	// Unready: its input is still being written, so no other rank knows of it.
	Unready
	// Executing: all members have submitted it, and it is being executed or will be.
	Executing
	// Refused: this rank has refused a call of it, and does not wait. The call fails on the others when all have made
	// it.
	Refused
)

// Waiting is an operation that is pending on a rank.
type Waiting struct {
	Set   int           `json:"s,omitempty"` // process set
	Name  string        `json:"n"`
	Op    string        `json:"o"` // such as "ALLREDUCE"
	Since time.Duration `json:"t"` // how long this rank has been waiting
	Phase Phase         `json:"p,omitempty"`
	// Blocked is how long the rank's main thread has waited for it, while the rank submitted nothing and had no
	// Unready operation, which it would submit by itself; 0 otherwise.
	Blocked time.Duration `json:"b,omitempty"`
	// Needed: that thread cannot continue before this operation has ended.
	Needed bool `json:"d,omitempty"`
}

func (w *Waiting) joined() bool { return w.Op == OpJoin }

// key identifies an operation among the ranks.
type key struct {
	set  int
	name string
}

func (w *Waiting) key() key { return key{w.Set, w.Name} }

// mark is a hash of a key, for answers without room for the key. Different keys hardly ever have the same mark.
func (k key) mark() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, k.set, k.name)
	return h.Sum32()
}

// answer is a rank's reply: the operations for which it waits, the oldest first, and the number of further ones. Of
// these it has as many marks as fit.
type answer struct {
	Waiting []Waiting `json:"w"`
	More    int       `json:"m,omitempty"`
	At      string    `json:"a,omitempty"` // where the rank's program is; empty if not known
	Marks   []byte    `json:"h,omitempty"` // of markSize each
	// OthersSubmit: a thread other than the main one has submitted an operation on this rank, and may do so again.
	OthersSubmit bool `json:"x,omitempty"`
}

// told is the unit of the durations in answers, which are rounded down. Ranks that wait for the same operations give
// equal answers that way, which the launcher passes on as one. They ask soon after a full second, see soon.
const told = time.Second

// roundedDown is the time for which a rank has been blocked, as answers tell it: never more, because it proves a
// deadlock, and 0 only for 0, because a rank that has just been blocked is blocked.
func roundedDown(d time.Duration) time.Duration { return max(d.Truncate(told), min(d, 1)) }

// encode encodes the pending operations of this rank, where its program is, and whether threads other than the main one
// submit operations, within the limits.
func encode(pending []Waiting, at string, othersSubmit bool) []byte {
	pending = tidy(pending)
	for i := range pending {
		w := &pending[i]
		w.Since, w.Blocked = w.Since.Truncate(told), roundedDown(w.Blocked)
	}
	slices.SortFunc(pending, older) // those of one second by their names
	a := answer{Waiting: pending, At: label(at), OthersSubmit: othersSubmit}
	if len(pending) > maxEntries {
		// The join matters for every tensor, and the operations that block the rank matter for a deadlock, so these
		// come first.
		slices.SortStableFunc(pending, func(a, b Waiting) int {
			return cmp.Or(cmp.Compare(fromBool(b.joined()), fromBool(a.joined())), cmp.Compare(b.Blocked, a.Blocked))
		})
		a.Waiting, a.More = pending[:maxEntries], len(pending)-maxEntries
		for _, w := range pending[maxEntries:min(len(pending), maxEntries+maxMarks)] {
			a.Marks = binary.LittleEndian.AppendUint32(a.Marks, w.key().mark())
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it would make six bytes of one
	if err := e.Encode(a); err != nil {
		panic(err) // numbers and valid texts can always be encoded
	}
	return b.Bytes()
}

// decode decodes another rank's answer. It accepts nothing beyond the limits.
func decode(p []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(p, &a); err != nil {
		return answer{}, fmt.Errorf("the answer cannot be read: %w", err)
	}
	a.More = min(max(a.More, 0), math.MaxInt32/2)
	if len(a.Waiting) > maxEntries {
		a.More += len(a.Waiting) - maxEntries
		a.Waiting = a.Waiting[:maxEntries]
	}
	a.Waiting, a.At = tidy(a.Waiting), label(a.At)
	a.Marks = a.Marks[:min(len(a.Marks)/markSize, maxMarks, a.More)*markSize]
	return a, nil
}

// tidy returns a copy, the oldest first, with names fit to be shown, and to be compared with another rank's.
func tidy(list []Waiting) []Waiting {
	list = slices.Clone(list)
	for i := range list {
		w := &list[i]
		w.Name, w.Op, w.Since, w.Blocked = label(w.Name), label(w.Op), max(w.Since, 0), max(w.Blocked, 0)
		if w.Phase > Refused {
			w.Phase = Submitted
		}
	}
	slices.SortFunc(list, older)
	return list
}

// older orders operations by age, and those of one age by name.
func older(a, b Waiting) int {
	return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Set, b.Set))
}

// label returns a name fit for messages and terminals: bounded, and without control characters. A changed name ends in
// a hash of the whole name, the same on every rank.
func label(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if clean == name && len(name) <= maxName {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	n := min(len(clean), maxName-len("…#00000000"))
	for n > 0 && n < len(clean) && !utf8.RuneStart(clean[n]) {
		n--
	}
	return fmt.Sprintf("%s…#%08x", clean[:n], h.Sum32())
}

func fromBool(b bool) int {
	if b {
		return 1
	}
	return 0
}
