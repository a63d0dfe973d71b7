package negotiate

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

func sampleRequests() []Request {
	dims := make(tensor.Shape, MaxDims)
	for i := range dims {
		dims[i] = math.MaxInt64
	}
	return []Request{
		{},
		{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "grad/ü", Device: CPUDevice,
			Shape: tensor.Shape{2, 0, 300}, Prescale: 1, Postscale: 0.5, Wire: tensor.WireBFloat16},
		{Type: operation.Broadcast, DType: tensor.Bool, Name: "w", Root: math.MaxInt32, Device: math.MinInt32,
			Prescale: math.Inf(-1), Postscale: math.Copysign(0, -1)},
		{Type: operation.Reducescatter, DType: tensor.BFloat16, ReduceOp: tensor.Product, Name: strings.Repeat("n",
			MaxName), Root: math.MinInt32, Shape: dims, Group: strings.Repeat("g", MaxName), GroupSize: math.MaxInt32,
			Ranks: longRanks(MaxRanks)},
		{Type: operation.AddProcessSet, Name: "process_set.add", Device: CPUDevice,
			Ranks: []int32{0, 1, 7, math.MaxInt32}},
		{Type: operation.Settle, Group: "g", GroupSize: 1, Ranks: []int32{5}},
		{Type: operation.Allreduce, Name: "alone", Alone: true},
		{Type: operation.Allreduce, Name: "alone and contested", Alone: true, Contested: true},
		{Type: operation.Allreduce, Name: "r", Refused: strings.Repeat("r", MaxRefused)},
	}
}

func sampleResponses() []Response {
	return []Response{
		{Card: NoCard},
		{Type: operation.Allreduce, DType: tensor.Float16, ReduceOp: tensor.Max, Name: "a", Device: CPUDevice,
			Shape: tensor.Shape{7}, Prescale: 2, Postscale: 3, Wire: tensor.WireFloat16, Card: 0, Gen: math.MaxUint32},
		{Type: operation.Allgather, DType: tensor.Int64, Name: "g", Shape: tensor.Shape{6, 3}, FirstDims: []int64{1, 0,
			5}, Card: NoCard - 1, Gen: 1},
		{Type: operation.Alltoall, Err: strings.Repeat("e", maxErr), Name: "x", Card: NoCard},
		{Type: operation.Reducescatter, Group: "g", GroupSize: 2, Joined: []int32{0, 3}, Card: NoCard},
		{Type: operation.Allreduce, Name: "alone", Alone: true, Last: 1, Card: 3, Gen: 1},
		{Type: operation.Join, Last: -1, Card: NoCard},
	}
}

// longRanks returns n ranks with the longest encoding that n ranks below 2³¹ can have.
func longRanks(n int) []int32 {
	ranks := make([]int32, n)
	for i := range ranks {
		ranks[i] = int32(i+1) * (math.MaxInt32 / int32(n))
	}
	return ranks
}

// TestRoundTrip: Decode restores what Append has encoded, and refuses every prefix and every extension.
func TestRoundTrip(t *testing.T) {
	for _, want := range sampleRequests() {
		p := want.Append(nil)
		roundTrip(t, p, &want, new(Request))
	}
	for _, want := range sampleResponses() {
		p := want.Append(nil)
		roundTrip(t, p, &want, new(Response))
	}
}

type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

func roundTrip(t *testing.T, p []byte, want, got message) {
	t.Helper()
	if len(p) > transport.MaxRecord {
		t.Errorf("%d bytes do not fit into a record", len(p))
	}
	if err := got.Decode(p); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("decode: %v, got %+v, want %+v", err, got, want)
	}
	for n := 0; n < len(p); n += 1 + len(p)/500 {
		if err := got.Decode(p[:n]); err == nil {
			t.Errorf("%d bytes of %d were accepted", n, len(p))
		}
	}
	if err := got.Decode(append(p[:len(p):len(p)], 0)); err == nil {
		t.Errorf("a trailing byte was accepted")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("a failed Decode has changed the message")
	}
	clear(p)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the message shares memory with its encoding")
	}
}

func TestDecodeRefuses(t *testing.T) {
	request := func(change func(*Request)) []byte {
		r := Request{Name: "n", Shape: tensor.Shape{1}}
		change(&r)
		return r.Append(nil)
	}
	response := func(change func(*Response)) []byte {
		r := Response{Name: "n", Shape: tensor.Shape{1}, Card: NoCard}
		change(&r)
		return r.Append(nil)
	}
	for _, tc := range []struct {
		err string
		to  message
		p   []byte
	}{
		{"unknown request type 8", new(Request), request(func(r *Request) { r.Type = 8 })},
		{"unknown request type 77", new(Request), request(func(r *Request) { r.Type = 77 })},
		{"group size out of range", new(Request), request(func(r *Request) { r.Group = "g" })},
		{"group size out of range", new(Request), request(func(r *Request) { r.Group, r.GroupSize = "g", -1 })},
		{"group name of 16385 bytes", new(Request),
			request(func(r *Request) { r.Group, r.GroupSize = strings.Repeat("g", MaxName+1), 1 })},
		{"16385 ranks are too many", new(Request), request(func(r *Request) { r.Ranks = longRanks(MaxRanks + 1) })},
		{"out of range", new(Request), request(func(r *Request) { r.Ranks = []int32{1, 1} })},
		{"out of range", new(Request), request(func(r *Request) { r.Ranks = []int32{-1} })},
		{"out of range", new(Response), response(func(r *Response) { r.Joined = []int32{2, 1} })},
		// Two distances are in range, but their sum is not.
		{"rank out of range", new(Request), append(bytes.TrimSuffix(request(func(*Request) {}), []byte{0, 0}), 2, 0xff,
			0xff, 0xff, 0xff, 7, 1)},
		{"unknown dtype(13)", new(Request), request(func(r *Request) { r.DType = tensor.NumDTypes })},
		{"unknown reduce op(9)", new(Request), request(func(r *Request) { r.ReduceOp = tensor.NumReduceOps })},
		{"unknown wire(5)", new(Request), request(func(r *Request) { r.Wire = tensor.NumWires })},
		{"unknown wire(5)", new(Response), response(func(r *Response) { r.Wire = tensor.NumWires })},
		{"too long", new(Request), request(func(r *Request) { r.Name = strings.Repeat("n", MaxName+1) })},
		{"256 dimensions", new(Request), request(func(r *Request) { r.Shape = make(tensor.Shape, MaxDims+1) })},
		{"dimension out of range", new(Request), request(func(r *Request) { r.Shape[0] = -1 })},
		{"too short", new(Request), nil},
		{"not encoded minimally", new(Request), append([]byte{0, 0, 0, 0, 0, 0x80, 0}, make([]byte, 30)...)},
		{"number out of range", new(Request), append([]byte{0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 30)...)},
		// Decode must not believe a length beyond the message.
		{"too short", new(Request), append([]byte{0, 0, 0, 0, 0}, 0x80, 0x7f)},
		{"unknown request type 8", new(Response), response(func(r *Response) { r.Type = 8 })},
		{"unknown flags 0x4", new(Request), append([]byte{flagErr}, request(func(*Request) {})[1:]...)},
		{"unknown flags 0x2", new(Response), append([]byte{flagContested}, response(func(*Response) {})[1:]...)},
		{"empty error text", new(Response), []byte{flagErr, 0, 0, 0, 0, 0, 0}},
		{"error text of 65537 bytes", new(Response),
			response(func(r *Response) { r.Err = strings.Repeat("e", maxErr+1) })},
		{"too many elements", new(Response), response(func(r *Response) { r.Shape = tensor.Shape{1 << 62, 2} })},
		{"too many bytes", new(Response),
			response(func(r *Response) { r.Shape, r.DType = tensor.Shape{1 << 62}, tensor.Float64 })},
		{"without an allgather", new(Response), response(func(r *Response) { r.FirstDims = []int64{1} })},
		{"do not add up", new(Response), response(func(r *Response) { r.Type = operation.Allgather })},
		{"do not add up", new(Response),
			response(func(r *Response) { r.Type, r.FirstDims = operation.Allgather, []int64{1, 1} })},
		{"do not add up", new(Response),
			response(func(r *Response) { r.Type, r.Shape, r.FirstDims = operation.Allgather, nil, []int64{0} })},
		{"add up to too many", new(Response),
			response(func(r *Response) { r.Type, r.FirstDims = operation.Allgather, []int64{math.MaxInt64, 2} })},
		// A huge count of first dimensions must be refused before memory is allocated.
		{"too short", new(Response), append([]byte{0, byte(operation.Allgather), 0, 0, 0, 0, 0, 0, 0, 0}, 0xff, 0xff,
			0xff, 0xff, 0xff, 0xff, 0x7f)},
	} {
		if err := tc.to.Decode(tc.p); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("got %v, want an error with %q", err, tc.err)
		}
	}
}

// FuzzRequest: Decode takes any bytes without a panic, and Append encodes an accepted Request as the same bytes.
func FuzzRequest(f *testing.F) {
	for _, r := range slices.Delete(sampleRequests(), 3, 4) {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) { reencode(t, p, new(Request)) })
}

func FuzzResponse(f *testing.F) {
	for _, r := range slices.Delete(sampleResponses(), 3, 4) {
		f.Add(r.Append(nil))
	}
	r := Response{Err: "mismatch", Card: NoCard}
	f.Add(r.Append(nil))
	f.Fuzz(func(t *testing.T, p []byte) { reencode(t, p, new(Response)) })
}

func reencode(t *testing.T, p []byte, m message) {
	if m.Decode(p) != nil {
		return
	}
	if again := m.Append(nil); !bytes.Equal(again, p) {
		t.Errorf("%x was accepted, but is encoded as %x", p, again)
	}
}
