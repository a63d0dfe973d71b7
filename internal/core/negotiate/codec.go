package negotiate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The encoding: single bytes for enumerations, minimal varints for lengths,
// dimensions and numbers (zigzag where they are signed), IEEE 754 little-endian
// for factors. A message has exactly one encoding, and carries no version: the
// members have compared theirs when they joined.
//
//	Request:  flags type dtype op wire name root device shape prescale postscale group [groupsize] ranks refused
//	Response: flags type dtype op wire name [err] root device shape firstdims prescale postscale group [groupsize]
//	          joined [card gen]

// maxErr bounds Response.Err. The coordinator's messages stay below it by
// construction (see variants), so that a Response always fits into a record.
const maxErr = 64 << 10

// The flags of an encoded Request and Response.
const (
	flagAlone     = 1 << 0
	flagContested = 1 << 1 // Request
	flagErr       = 1 << 2 // Response
	flagCard      = 1 << 3 // Response
)

// Append appends r's encoding to b. r must be within MaxName (Group, too), MaxDims, MaxRanks and MaxRefused. It must
// have no negative dimension, a GroupSize only with a Group, and ascending Ranks. Decode refuses anything else.
func (r *Request) Append(b []byte) []byte {
	var flags byte
	if r.Alone {
		flags |= flagAlone
	}
	if r.Contested {
		flags |= flagContested
	}
	b = append(b, flags, byte(r.Type), byte(r.DType), byte(r.ReduceOp), byte(r.Wire))
	b = appendString(b, r.Name)
	b = binary.AppendVarint(b, int64(r.Root))
	b = binary.AppendVarint(b, int64(r.Device))
	b = appendDims(b, r.Shape)
	b = appendFloat(b, r.Prescale)
	b = appendFloat(b, r.Postscale)
	b = appendGroup(b, r.Group, r.GroupSize)
	b = appendAscending(b, r.Ranks)
	return appendString(b, r.Refused)
}

// Decode sets r to the Request encoded in p, all of it. It copies all that r keeps, so r shares no memory with p or
// with its former fields. After an error r is unchanged.
func (r *Request) Decode(p []byte) error {
	d := decoder{p: p}
	var q Request
	flags := d.flags(flagAlone | flagContested)
	q.Alone, q.Contested = flags&flagAlone != 0, flags&flagContested != 0
	q.Type = d.requestType()
	q.DType = d.dtype()
	q.ReduceOp = d.reduceOp()
	q.Wire = d.wire()
	q.Name = d.str(MaxName, "name")
	q.Root = d.int32()
	q.Device = d.int32()
	q.Shape = d.dims(MaxDims)
	q.Prescale = d.float()
	q.Postscale = d.float()
	q.Group, q.GroupSize = d.group()
	q.Ranks = d.ascending(MaxRanks)
	q.Refused = d.str(MaxRefused, "refusal")
	if err := d.end(); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	*r = q
	return nil
}

// Append appends r's encoding to b, under the conditions of Request.Append.
func (r *Response) Append(b []byte) []byte {
	var flags byte
	if r.Alone {
		flags |= flagAlone
	}
	if r.Err != "" {
		flags |= flagErr
	}
	if r.Card != NoCard {
		flags |= flagCard
	}
	b = append(b, flags, byte(r.Type), byte(r.DType), byte(r.ReduceOp), byte(r.Wire))
	b = appendString(b, r.Name)
	if r.Err != "" {
		b = appendString(b, r.Err)
	}
	b = binary.AppendVarint(b, int64(r.Root))
	b = binary.AppendVarint(b, int64(r.Device))
	b = binary.AppendVarint(b, int64(r.Last))
	b = appendDims(b, r.Shape)
	b = appendDims(b, r.FirstDims)
	b = appendFloat(b, r.Prescale)
	b = appendFloat(b, r.Postscale)
	b = appendGroup(b, r.Group, r.GroupSize)
	b = appendAscending(b, r.Joined)
	if r.Card != NoCard {
		b = binary.AppendUvarint(b, uint64(r.Card))
		b = binary.AppendUvarint(b, uint64(r.Gen))
	}
	return b
}

// Decode sets r to the Response encoded in p, all of it, as Request.Decode does. It also refuses Responses that no
// coordinator sends: a size beyond int64, or first dimensions that do not add up to the shape.
func (r *Response) Decode(p []byte) error {
	d := decoder{p: p}
	q := Response{Card: NoCard}
	flags := d.flags(flagAlone | flagErr | flagCard)
	q.Alone = flags&flagAlone != 0
	q.Type = d.requestType()
	q.DType = d.dtype()
	q.ReduceOp = d.reduceOp()
	q.Wire = d.wire()
	q.Name = d.str(MaxName, "name")
	if flags&flagErr != 0 {
		if q.Err = d.str(maxErr, "error text"); q.Err == "" {
			d.fail(errors.New("empty error text"))
		}
	}
	q.Root = d.int32()
	q.Device = d.int32()
	q.Last = d.int32()
	q.Shape = d.dims(MaxDims)
	q.FirstDims = d.dims(math.MaxInt)
	q.Prescale = d.float()
	q.Postscale = d.float()
	q.Group, q.GroupSize = d.group()
	q.Joined = d.ascending(math.MaxInt)
	if flags&flagCard != 0 {
		if q.Card = d.uint32(); q.Card == NoCard {
			d.fail(errors.New("card out of range"))
		}
		q.Gen = d.uint32()
	}
	err := d.end()
	if err == nil {
		err = q.consistent()
	}
	if err != nil {
		return fmt.Errorf("decode response: %w", err)
	}
	*r = q
	return nil
}

// consistent checks the properties of a Response on which its executors rely.
func (r *Response) consistent() error {
	if _, err := byteSize(r.Shape, r.DType); err != nil {
		return err
	}
	if r.Type == operation.Tune && r.Err == "" {
		return nil
	}
	if r.Type.Describe().Output != operation.OfAll || r.Err != "" {
		if len(r.FirstDims) != 0 {
			return errors.New("first dimensions without an allgather")
		}
		return nil
	}
	sum, err := sumDims(r.FirstDims)
	if err != nil {
		return err
	}
	if len(r.Shape) == 0 || len(r.FirstDims) == 0 || sum != r.Shape[0] {
		return errors.New("first dimensions do not add up to the shape")
	}
	return nil
}

// byteSize is the size of a tensor in bytes.
func byteSize(s tensor.Shape, t tensor.DType) (int64, error) {
	n, err := s.NumElements()
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/int64(max(t.Size(), 1)) {
		return 0, fmt.Errorf("shape %v of %v: too many bytes", s, t)
	}
	return n * int64(t.Size()), nil
}

func sumDims(dims []int64) (int64, error) {
	var sum int64
	for _, n := range dims {
		if n > math.MaxInt64-sum {
			return 0, errors.New("the first dimensions add up to too many elements")
		}
		sum += n
	}
	return sum, nil
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendDims(b []byte, dims []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(dims)))
	for _, n := range dims {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func appendGroup(b []byte, name string, size int32) []byte {
	b = appendString(b, name)
	if name == "" {
		return b
	}
	return binary.AppendUvarint(b, uint64(size))
}

// appendAscending appends the number of elements of list, then the distance of each element to the one before it.
func appendAscending(b []byte, list []int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := int32(-1)
	for _, n := range list {
		b = binary.AppendUvarint(b, uint64(n-last-1))
		last = n
	}
	return b
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

var errShort = errors.New("message too short")

// decoder takes values off the front of p. It keeps the first error; after that every value is zero.
type decoder struct {
	p   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.p = nil
}

// end is called after the last value.
func (d *decoder) end() error {
	if d.err == nil && len(d.p) != 0 {
		d.err = fmt.Errorf("%d bytes after the end", len(d.p))
	}
	return d.err
}

// take returns the next n bytes, or nil.
func (d *decoder) take(n int) []byte {
	if len(d.p) < n {
		d.fail(errShort)
		return nil
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	switch {
	case n == 0:
		d.fail(errShort)
		return 0
	case n < 0:
		d.fail(errors.New("number out of range"))
		return 0
	case n > 1 && d.p[n-1] == 0:
		d.fail(errors.New("number is not encoded minimally"))
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail(errors.New("number out of range"))
		return 0
	}
	return uint32(v)
}

func (d *decoder) int32() int32 {
	u := d.uint32() // zigzag keeps 32-bit numbers in 32 bits
	return int32(u>>1) ^ -int32(u&1)
}

func (d *decoder) float() float64 {
	if v := d.take(8); v != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) str(limit int, what string) string {
	n := d.uvarint()
	if n > uint64(limit) {
		d.fail(fmt.Errorf("%s of %d bytes is too long", what, n))
		return ""
	}
	return string(d.take(int(n)))
}

// dims decodes at most limit dimensions; nil if there are none.
func (d *decoder) dims(limit int) []int64 {
	n := d.count(limit, "dimensions")
	if n == 0 {
		return nil
	}
	dims := make([]int64, n)
	for i := range dims {
		v := d.uvarint()
		if v > math.MaxInt64 {
			d.fail(errors.New("dimension out of range"))
			return nil
		}
		dims[i] = int64(v)
	}
	return dims
}

// group decodes a group's name and size; "" and 0 if there is none.
func (d *decoder) group() (name string, size int32) {
	if name = d.str(MaxName, "group name"); name == "" {
		return "", 0
	}
	n := d.uvarint()
	if n < 1 || n > math.MaxInt32 {
		d.fail(errors.New("group size out of range"))
		return "", 0
	}
	return name, int32(n)
}

// ascending decodes at most limit numbers; nil if there are none.
func (d *decoder) ascending(limit int) []int32 {
	n := d.count(limit, "ranks")
	if n == 0 {
		return nil
	}
	list := make([]int32, n)
	last := int64(-1)
	for i := range list {
		last += int64(d.uint32()) + 1
		if last > math.MaxInt32 {
			d.fail(errors.New("rank out of range"))
			return nil
		}
		list[i] = int32(last)
	}
	return list
}

// count decodes how many values follow, at most limit.
func (d *decoder) count(limit int, what string) int {
	n := d.uvarint()
	if n > uint64(limit) {
		d.fail(fmt.Errorf("%d %s are too many", n, what))
		return 0
	}
	if n > uint64(len(d.p)) { // each value takes at least a byte; check this before the caller allocates memory
		d.fail(errShort)
		return 0
	}
	return int(n)
}

// flags decodes the flags, and refuses those that are not among known.
func (d *decoder) flags(known byte) byte {
	f := d.byte()
	if f&^known != 0 {
		d.fail(fmt.Errorf("unknown flags %#x", f))
	}
	return f
}

func (d *decoder) requestType() operation.Kind {
	t := operation.Kind(d.byte())
	if !t.Valid() {
		d.fail(fmt.Errorf("unknown %v", t))
	}
	return t
}

func (d *decoder) dtype() tensor.DType {
	t := tensor.DType(d.byte())
	if !t.Valid() {
		d.fail(fmt.Errorf("unknown %v", t))
	}
	return t
}

func (d *decoder) reduceOp() tensor.ReduceOp {
	op := tensor.ReduceOp(d.byte())
	if !op.Valid() {
		d.fail(fmt.Errorf("unknown %v", op))
	}
	return op
}

func (d *decoder) wire() tensor.Wire {
	w := tensor.Wire(d.byte())
	if !w.Valid() {
		d.fail(fmt.Errorf("unknown %v", w))
	}
	return w
}
