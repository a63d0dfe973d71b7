package roster

import (
	"encoding/binary"
	"errors"
)

// Member is what a rank tells the others about itself.
type Member struct {
	Host      string
	PID       int
	LocalSize int
	Claim     Claim
	Machine   Machine
	Knobs     map[string]string // rank 0's
	MPIRank   int               // -1 without MPI
	// Rails is over how many interfaces of its host data may be spread, see reach.Rails; 0: unknown
	Rails int
}

// Every rank reads every other rank's Member, so its size decides how the start grows with the job. Hence it is not
// JSON, and members share equal values in memory.
//
//	host  network  processes  pid  local size  claim: local rank  size  cross rank  size
//	MPI's rank + 1  rails  count  count × (name  value)
//
// Numbers are uvarints; a text is its length and its bytes.

// Encode returns the bytes that the rank sends.
func (m *Member) Encode() []byte {
	b := appendText(nil, m.Host)
	b = appendText(b, m.Machine.Network)
	b = appendText(b, m.Machine.Processes)
	for _, n := range []int{m.PID, m.LocalSize, m.Claim.LocalRank, m.Claim.LocalSize, m.Claim.CrossRank,
		m.Claim.CrossSize, m.MPIRank + 1, m.Rails, len(m.Knobs)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for name, value := range m.Knobs {
		b = appendText(appendText(b, name), value)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errMember = errors.New("it is malformed")

// decode reverses Encode. It shares equal values with before, another rank's Member.
func (m *Member) decode(b []byte, before *Member) error {
	r := memberReader{b: b}
	m.Host = r.text(before.Host)
	m.Machine = Machine{r.text(before.Machine.Network), r.text(before.Machine.Processes)}
	m.PID, m.LocalSize = r.number(), r.number()
	m.Claim = Claim{r.number(), r.number(), r.number(), r.number()}
	m.MPIRank = r.number() - 1
	m.Rails = r.number()
	if n := r.number(); n > 0 && n <= len(r.b) {
		m.Knobs = make(map[string]string, n)
		for range n {
			name := r.text("")
			m.Knobs[name] = r.text("")
		}
	} else if n > 0 {
		return errMember
	}
	if r.bad || len(r.b) > 0 {
		return errMember
	}
	return nil
}

// memberReader reads fields. After a missing field it is bad and reads no more.
type memberReader struct {
	b   []byte
	bad bool
}

func (r *memberReader) number() int {
	n, used := binary.Uvarint(r.b)
	if r.bad || used <= 0 || n > 1<<31 {
		r.bad = true
		return 0
	}
	r.b = r.b[used:]
	return int(n)
}

// text returns likely if the text is equal, so that members share it.
func (r *memberReader) text(likely string) string {
	n := r.number()
	if r.bad || n > len(r.b) {
		r.bad = true
		return ""
	}
	p := r.b[:n]
	r.b = r.b[n:]
	if string(p) == likely {
		return likely
	}
	return string(p)
}
