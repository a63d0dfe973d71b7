package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// MaxBytes is the most that encoded Figures may have.
const MaxBytes = 16 << 10

// maxRank bounds the numbers of ranks.
const maxRank = 1 << 24

// version distinguishes encodings.
const version = 7

var errShort = errors.New("figures end too early")

// Append appends the encoded figures: a version, then varints. Empty buckets at both ends of a histogram are left out,
// so that a rank of a usual job tells a few hundred bytes.
func (f *Figures) Append(p []byte) []byte {
	p = binary.AppendUvarint(p, version)
	p = binary.AppendUvarint(p, uint64(len(f.Works)))
	for i := range f.Works {
		p = f.Works[i].append(p)
	}
	p = binary.AppendUvarint(p, uint64(len(f.Tensors)))
	for i := range f.Tensors {
		p = f.Tensors[i].append(p)
	}
	p = binary.AppendUvarint(p, uint64(len(f.Traffic)))
	for i := range f.Traffic {
		p = f.Traffic[i].append(p)
	}
	p = f.Steps.append(f.Negotiation.append(p))
	for _, n := range f.numbers() {
		p = binary.AppendUvarint(p, *n)
	}
	p = binary.AppendUvarint(p, uint64(len(f.WaitedFor)))
	for _, l := range f.WaitedFor {
		p = binary.AppendUvarint(binary.AppendUvarint(p, uint64(l.Rank)), l.Nanoseconds)
	}
	p = binary.AppendUvarint(p, uint64(len(f.Waits)))
	for i := range f.Waits {
		p = f.Waits[i].append(p)
	}
	p = appendText(appendText(p, f.Link.To[:min(len(f.Link.To), maxTo)]), f.NIC.Name[:min(len(f.NIC.Name), maxNIC)])
	p = appendStack(appendSets(p, f.Sets), f.Stack)
	p = binary.AppendUvarint(p, uint64(len(f.Tables)))
	for i := range f.Tables {
		p = f.Tables[i].append(p)
	}
	return p
}

func (t *Table) append(p []byte) []byte {
	p = appendText(binary.AppendUvarint(p, uint64(t.Set)), cut(t.Name, maxTable))
	for _, n := range t.numbers() {
		p = binary.AppendUvarint(p, *n)
	}
	return p
}

// numbers are the fields that are encoded as they are, in order.
func (t *Table) numbers() []*uint64 {
	return []*uint64{&t.Rows, &t.Bytes, &t.Hottest, &t.Pulls, &t.Pushes, &t.PullTime, &t.PushTime, &t.Keys}
}

func appendSets(p []byte, sets []int) []byte {
	p = binary.AppendUvarint(p, uint64(len(sets)))
	for _, set := range sets {
		p = binary.AppendUvarint(p, uint64(set))
	}
	return p
}

func appendStack(p []byte, stack []Frame) []byte {
	p = binary.AppendUvarint(p, uint64(len(stack)))
	for _, s := range stack {
		p = appendText(appendText(p, cut(s.File, maxFile)), cut(s.Func, maxFile))
		p = binary.AppendUvarint(p, uint64(max(0, min(s.Line, maxLine))))
	}
	return p
}

func (w *Work) append(p []byte) []byte {
	p = binary.AppendUvarint(append(p, byte(w.Op), byte(w.Class)), w.Bytes)
	return w.Times.append(binary.AppendUvarint(p, w.Bus))
}

func (t *Traffic) append(p []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(p, byte(t.Way), byte(t.Class)), t.Bytes), t.Time)
}

func (t *Tensors) append(p []byte) []byte {
	return binary.AppendUvarint(append(p, byte(t.Op), byte(t.DType), byte(t.Set)), t.Count)
}

func (w *Wait) append(p []byte) []byte {
	p = binary.AppendUvarint(append(p, byte(w.Phase)), uint64(w.Set))
	return binary.AppendUvarint(appendText(appendText(p, w.Op), w.Name), w.Age)
}

func appendText(p []byte, s string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// numbers are the fields that are encoded as they are, in order.
func (f *Figures) numbers() []*uint64 {
	return []*uint64{&f.Waited, &f.Marks, &f.Requests, &f.NaNs, &f.Fusion.Batches, &f.Fusion.Tensors, &f.Fusion.Bytes,
		&f.Fusion.Threshold, &f.Pending, &f.Oldest, &f.Resident, &f.CPU, &f.Main.Running,
		&f.Main.Starved, &f.Main.Looks, &f.Main.Asleep, &f.Main.Reading, &f.Main.Locked, &f.Link.Busy,
		&f.Link.Bytes, &f.Samples, &f.NIC.Rate, &f.Early.Operations, &f.Early.Bytes,
		&f.Hosts.Latency, &f.Hosts.Rate, &f.Hosts.Took}
}

func (h *Histogram) append(p []byte) []byte {
	first, end := 0, len(h.Counts)
	for end > 0 && h.Counts[end-1] == 0 {
		end--
	}
	for first < end && h.Counts[first] == 0 {
		first++
	}
	p = append(p, byte(first), byte(end-first))
	for _, n := range h.Counts[first:end] {
		p = binary.AppendUvarint(p, n)
	}
	return binary.AppendUvarint(p, h.Sum)
}

// Decode is the inverse of Append. It trusts nothing: figures that it returns have valid kinds, types, classes and
// sets, each combination at most once.
func Decode(p []byte) (*Figures, error) {
	if len(p) > MaxBytes {
		return nil, fmt.Errorf("figures of %d bytes, at most %d are allowed", len(p), MaxBytes)
	}
	r := reader{p: p}
	if v := r.number(); r.err == nil && v != version {
		return nil, fmt.Errorf("figures of version %d, not %d", v, version)
	}
	f := &Figures{}
	works := map[[2]byte]bool{}
	for range r.length() {
		w := Work{Op: operation.Kind(r.byte()), Class: Class(r.byte()), Bytes: r.number(), Bus: r.number(),
			Times: r.histogram()}
		key := [2]byte{byte(w.Op), byte(w.Class)}
		if r.err == nil && (!w.Op.Valid() || w.Class >= NumClasses || works[key]) {
			r.err = fmt.Errorf("figures of operation %d in class %d", w.Op, w.Class)
		}
		works[key] = true
		f.Works = append(f.Works, w)
	}
	counts := map[[3]byte]bool{}
	for range r.length() {
		t := Tensors{Op: operation.Kind(r.byte()), DType: tensor.DType(r.byte()), Set: int(r.byte()), Count: r.number()}
		key := [3]byte{byte(t.Op), byte(t.DType), byte(t.Set)}
		if r.err == nil && (!t.Op.Valid() || !t.DType.Valid() || t.Set > OtherSets || counts[key]) {
			r.err = fmt.Errorf("figures of operation %d, type %d and process set %d", t.Op, t.DType, t.Set)
		}
		counts[key] = true
		f.Tensors = append(f.Tensors, t)
	}
	traffic := map[[2]byte]bool{}
	for range r.length() {
		t := Traffic{Way: Way(r.byte()), Class: Class(r.byte()), Bytes: r.number(), Time: r.number()}
		key := [2]byte{byte(t.Way), byte(t.Class)}
		if r.err == nil && (t.Way >= NumWays || t.Class >= NumClasses || traffic[key]) {
			r.err = fmt.Errorf("figures of bytes sent in way %d in class %d", t.Way, t.Class)
		}
		traffic[key] = true
		f.Traffic = append(f.Traffic, t)
	}
	f.Negotiation, f.Steps = r.histogram(), r.histogram()
	for _, n := range f.numbers() {
		*n = r.number()
	}
	before := -1
	for range r.length() {
		l := Late{Rank: int(r.number()), Nanoseconds: r.number()}
		if r.err == nil && (l.Rank <= before || l.Rank > maxRank) {
			r.err = fmt.Errorf("figures of a wait for rank %d", l.Rank)
		}
		before = l.Rank
		f.WaitedFor = append(f.WaitedFor, l)
	}
	for range r.length() {
		w := Wait{Phase: Phase(r.byte()), Set: int(r.number()), Op: r.text(maxOp), Name: r.text(maxName),
			Age: r.number()}
		if r.err == nil && (w.Phase >= numPhases || len(f.Waits) == MaxWaits) {
			r.err = fmt.Errorf("figures of %d operations in phase %d", len(f.Waits)+1, w.Phase)
		}
		f.Waits = append(f.Waits, w)
	}
	f.Link.To, f.NIC.Name = r.text(maxTo), r.text(maxNIC)
	before = 0
	for range r.length() {
		set := int(r.number())
		if r.err == nil && (set <= before || len(f.Sets) == MostSets) {
			r.err = fmt.Errorf("figures of %d process sets, the last one %d", len(f.Sets)+1, set)
		}
		before = set
		f.Sets = append(f.Sets, set)
	}
	for range r.length() {
		s := Frame{File: r.text(maxFile), Func: r.text(maxFile), Line: int(r.number())}
		if r.err == nil && (len(f.Stack) == maxDepth || s.Line > maxLine) {
			r.err = fmt.Errorf("figures of a stack of %d functions, at line %d", len(f.Stack)+1, s.Line)
		}
		f.Stack = append(f.Stack, s)
	}
	r.tables(f)
	if r.err == nil && len(r.p) > 0 {
		r.err = fmt.Errorf("%d bytes behind the figures", len(r.p))
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// tables reads Figures.Tables.
func (r *reader) tables(f *Figures) {
	known := map[tableKey]bool{}
	for range r.length() {
		t := Table{Set: int(r.number()), Name: r.text(maxTable)}
		for _, n := range t.numbers() {
			*n = r.number()
		}
		if r.err == nil && (len(f.Tables) == MaxTables || known[t.key()] || t.Hottest > 1e6 ||
			!utf8.ValidString(t.Name)) {
			r.err = fmt.Errorf("figures of table %d, %q", len(f.Tables)+1, t.Name)
		}
		known[t.key()] = true
		f.Tables = append(f.Tables, t)
	}
}

// reader takes apart p. After an error it returns zeros.
type reader struct {
	p   []byte
	err error
}

func (r *reader) byte() byte {
	if r.err != nil || len(r.p) == 0 {
		r.fail()
		return 0
	}
	b := r.p[0]
	r.p = r.p[1:]
	return b
}

// number reads what a counter may hold: less than 2^63, so that a sum of a few does not wrap around.
func (r *reader) number() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v >= 1<<63 {
		r.fail()
		return 0
	}
	r.p = r.p[n:]
	return v
}

// length reads the number of elements that follow, each of several bytes.
func (r *reader) length() int {
	n := r.number()
	if n > uint64(len(r.p)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) text(most int) string {
	n := r.length()
	if n > most {
		r.fail()
		return ""
	}
	s := string(r.p[:n])
	r.p = r.p[n:]
	return s
}

func (r *reader) histogram() (h Histogram) {
	first, n := int(r.byte()), int(r.byte())
	if first+n > len(h.Counts) {
		r.fail()
		return h
	}
	for i := range n {
		h.Counts[first+i] = r.number()
	}
	h.Sum = r.number()
	return h
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errShort
	}
}
