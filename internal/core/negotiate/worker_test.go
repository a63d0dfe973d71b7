package negotiate

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

func TestLookupMatchesEveryField(t *testing.T) {
	base := map[operation.Kind]Request{
		operation.Allreduce: {Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "x",
			Device: CPUDevice, Shape: tensor.Shape{2, 3}, Prescale: 1, Postscale: math.NaN()},
		operation.Broadcast: {Type: operation.Broadcast, DType: tensor.Float32, Name: "x", Root: 1, Device: 2,
			Shape: tensor.Shape{2, 3}},
		operation.Allgather: {Type: operation.Allgather, DType: tensor.Float32, Name: "x", Device: CPUDevice,
			Shape: tensor.Shape{2, 3}},
		operation.Barrier: {Type: operation.Barrier, Name: "x", Device: CPUDevice},
		operation.Alltoall: {Type: operation.Alltoall, DType: tensor.Float32, Name: "x", Device: CPUDevice,
			Shape: tensor.Shape{2, 3}},
		operation.Adasum: {Type: operation.Adasum, DType: tensor.Float32, ReduceOp: tensor.Adasum, Name: "x",
			Device: CPUDevice, Shape: tensor.Shape{2, 3}, Prescale: 1, Postscale: 1, Group: "g", GroupSize: 2},
		operation.Reducescatter: {Type: operation.Reducescatter, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "x",
			Device: CPUDevice, Shape: tensor.Shape{2, 3}, Prescale: 1, Postscale: 1},
	}
	all := []operation.Kind{operation.Allreduce, operation.Broadcast, operation.Allgather, operation.Barrier,
		operation.Alltoall, operation.Adasum, operation.Reducescatter}
	shaped := []operation.Kind{operation.Allreduce, operation.Broadcast, operation.Allgather, operation.Alltoall,
		operation.Adasum, operation.Reducescatter}
	scaled := []operation.Kind{operation.Allreduce, operation.Adasum, operation.Reducescatter}
	changes := []struct {
		name   string
		change func(*Request)
		miss   []operation.Kind // the kinds for which the change makes a difference
	}{
		{"nothing", func(*Request) {}, nil},
		{"name", func(r *Request) { r.Name = "y" }, all},
		{"type", func(r *Request) { r.Type++ }, all},
		{"dtype", func(r *Request) { r.DType++ }, all},
		{"kind of device", func(r *Request) { r.Device = -3 - r.Device }, []operation.Kind{operation.Allreduce,
			operation.Allgather, operation.Barrier, operation.Alltoall, operation.Adasum, operation.Reducescatter}},
		{"number of dimensions", func(r *Request) { r.Shape = append(tensor.Shape{2, 3}, 1) }, shaped},
		{"no dimensions", func(r *Request) { r.Shape = nil }, shaped},
		{"first dimension", func(r *Request) { r.Shape = tensor.Shape{4, 3} }, []operation.Kind{operation.Allreduce,
			operation.Broadcast, operation.Allgather, operation.Adasum, operation.Reducescatter}},
		{"second dimension", func(r *Request) { r.Shape = tensor.Shape{2, 4} }, shaped},
		{"reduce op", func(r *Request) { r.ReduceOp++ }, []operation.Kind{operation.Allreduce,
			operation.Reducescatter}},
		{"wire", func(r *Request) { r.Wire++ }, []operation.Kind{operation.Allreduce}},
		{"prescale", func(r *Request) { r.Prescale = 2 }, scaled},
		{"postscale", func(r *Request) { r.Postscale = 2 }, scaled},
		{"group", func(r *Request) { r.Group = "h" }, all},
		{"group size", func(r *Request) { r.GroupSize++ }, all},
		{"root", func(r *Request) { r.Root++ }, []operation.Kind{operation.Broadcast}},
		{"alone", func(r *Request) { r.Alone = true }, all},
	}
	for typ, req := range base {
		other := req
		if typ == operation.Allgather {
			other.Shape = tensor.Shape{4, 3} // member 0's; this is member 1
		}
		resp := merge([]*Request{&other, &req})
		resp.Card, resp.Gen = 5, 6
		w := NewWorker(1)
		w.Apply(resp)
		for _, c := range changes {
			r := req
			c.change(&r)
			want := true
			for _, m := range c.miss {
				want = want && m != typ
			}
			if card, gen, cached := w.Lookup(&r); cached != want || cached && (card != 5 || gen != 6) {
				t.Errorf("%v, %s changed: card %d gen %d, cached %v, want %v", typ, c.name, card, gen, cached, want)
			}
			// A leader holds back a Request that no other member has sent, unless it hears that a card is contested.
			if known := r.Name == req.Name; r.Contested != (known && !want) {
				t.Errorf("%v, %s changed: contested %v although cached %v, known %v", typ, c.name, r.Contested,
					want, known)
			}
		}
		// A mark stands for the Request that this member would have posted.
		if q := resp.request(1); !resp.answers(q, 1) || resp.answers(q, 0) != (typ != operation.Allgather) {
			t.Errorf("%v: %+v does not come from %+v", typ, q, resp)
		}
		if _, _, cached := NewWorker(0).Lookup(&req); cached {
			t.Errorf("%v: an empty cache knows it", typ)
		}
	}
}

// TestLookupForeignMember: a Response with too few first dimensions (of a
// corrupt peer) is a miss, not a panic.
func TestLookupForeignMember(t *testing.T) {
	r := Request{Type: operation.Allgather, Name: "x", Shape: tensor.Shape{2}}
	resp := merge([]*Request{&r})
	resp.Card = 0
	w := NewWorker(1)
	w.Apply(resp)
	if _, _, cached := w.Lookup(&r); cached {
		t.Error("cached")
	}
}

// TestLookupKeepsName: after Lookup the name of a cached Request is no longer in memory that the submitter may reuse.
func TestLookupKeepsName(t *testing.T) {
	memory := []byte("a")
	r := Request{Type: operation.Allreduce, Name: unsafe.String(&memory[0], len(memory)), Shape: tensor.Shape{1}}
	resp := merge([]*Request{{Type: operation.Allreduce, Name: "a", Shape: tensor.Shape{1}}})
	resp.Card = 0
	w := NewWorker(0)
	w.Apply(resp)
	_, _, cached := w.Lookup(&r)
	memory[0] = 'b'
	if !cached || r.Name != "a" {
		t.Errorf("cached %v, name %q", cached, r.Name)
	}
}

// TestLookupGroup: it appends all cards to dst or none, without an allocation.
func TestLookupGroup(t *testing.T) {
	w := NewWorker(0)
	var rs []*Request
	for i, name := range []string{"a", "b", "c"} {
		r := &Request{Type: operation.Allreduce, Name: name, Group: "g", GroupSize: 3, Shape: tensor.Shape{1}}
		rs = append(rs, r)
		resp := merge([]*Request{r})
		resp.Card, resp.Gen = uint32(10+i), uint32(i)
		w.Apply(resp)
	}
	other := *rs[1]
	other.Shape = tensor.Shape{2}
	strange := &Request{Type: operation.Allreduce, Name: "strange", Group: "g", GroupSize: 3, Shape: tensor.Shape{1}}
	if _, cached := w.LookupGroup(nil, []*Request{rs[0], &other, strange}); cached || !rs[0].Contested ||
		!other.Contested || strange.Contested {
		t.Errorf("cached %v; contested: %v of one that is as before, %v of one that has changed, %v of one "+
			"without a card", cached, rs[0].Contested, other.Contested, strange.Contested)
	}
	before := CardGen{1, 2}
	want := []CardGen{before, {10, 0}, {11, 1}, {12, 2}}
	dst := make([]CardGen, 1, 4)
	dst[0] = before
	n := testing.AllocsPerRun(10, func() {
		if got, cached := w.LookupGroup(dst, rs); !cached || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, cached, want)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range rs {
		changed := slices.Clone(rs)
		other := *rs[i]
		other.Shape = tensor.Shape{2}
		changed[i] = &other
		if got, cached := w.LookupGroup(dst, changed); cached || !slices.Equal(got, dst) {
			t.Errorf("%s has changed: %v, %v", rs[i].Name, got, cached)
		}
	}
}

// TestApplyForgetsRetiredCards: a card given before a Settle or a Join has no meaning after it.
func TestApplyForgetsRetiredCards(t *testing.T) {
	for _, typ := range []operation.Kind{operation.Settle, operation.Join} {
		w, r := warmWorker()
		w.Apply(&Response{Type: typ, Name: "join.noname", Card: NoCard})
		if _, _, cached := w.Lookup(r); cached {
			t.Errorf("%v: still cached", typ)
		}
		if _, err := w.Card(7); err == nil {
			t.Errorf("%v: the card is resolved", typ)
		}
	}
}

func TestApplyReplaces(t *testing.T) {
	w := NewWorker(0)
	req := func(name string) *Request {
		return &Request{Type: operation.Allreduce, Name: name, Shape: tensor.Shape{1}}
	}
	apply := func(name string, card, gen uint32, err string) *Response {
		resp := merge([]*Request{req(name)})
		resp.Card, resp.Gen, resp.Err = card, gen, err
		w.Apply(resp)
		return resp
	}
	known := func(name string) bool {
		_, _, cached := w.Lookup(req(name))
		return cached
	}
	resolve := func(card uint32) string {
		resp, err := w.Card(card)
		if err != nil {
			return ""
		}
		return resp.Name
	}

	given := apply("a", 0, 1, "")
	held, _ := w.Card(0)
	given.Shape[0] = 9 // the caller may reuse it
	if !known("a") || resolve(0) != "a" {
		t.Error("a is not known")
	}
	apply("b", 0, 2, "")
	if known("a") || !known("b") || resolve(0) != "b" {
		t.Error("b has not taken the card of a")
	}
	if held.Name != "a" || held.Gen != 1 {
		t.Errorf("a Response that is held was changed: %+v", held)
	}
	apply("b", 3, 1, "")
	if resolve(0) != "" || resolve(3) != "b" {
		t.Error("b has two cards")
	}
	apply("b", NoCard, 0, "")
	if known("b") || resolve(3) != "" {
		t.Error("b has kept a card that was retired")
	}
	apply("b", 3, 3, "")
	apply("b", 3, 4, "mismatch")
	if known("b") || resolve(3) != "" {
		t.Error("b has kept its card in spite of an error")
	}
	if _, err := w.Card(1 << 31); err == nil {
		t.Error("a card that never was is resolved")
	}
}

func warmWorker() (*Worker, *Request) {
	w := NewWorker(1)
	r := &Request{Type: operation.Allgather, DType: tensor.Float32, Name: "layer4.conv2.weight", Device: CPUDevice,
		Shape: tensor.Shape{64, 3, 3}}
	resp := merge([]*Request{r, r})
	resp.Card = 7
	w.Apply(resp)
	return w, r
}

func TestLookupDoesNotAllocate(t *testing.T) {
	w, r := warmWorker()
	n := testing.AllocsPerRun(100, func() {
		card, _, cached := w.Lookup(r)
		if resp, err := w.Card(card); !cached || err != nil || resp.Name != r.Name {
			t.Error("missed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	w, r := warmWorker()
	b.ReportAllocs()
	for b.Loop() {
		w.Lookup(r)
	}
}
