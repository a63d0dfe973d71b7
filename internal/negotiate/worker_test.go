package negotiate

import (
	"math"
	"testing"

	"github.com/gorovod/gorovod/internal/tensor"
)

func TestLookupMatchesEveryField(t *testing.T) {
	base := map[RequestType]Request{
		Allreduce: {Type: Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: "x", Device: CPUDevice, Shape: tensor.Shape{2, 3}, Prescale: 1, Postscale: math.NaN()},
		Broadcast: {Type: Broadcast, DType: tensor.Float32, Name: "x", Root: 1, Device: 2, Shape: tensor.Shape{2, 3}},
		Allgather: {Type: Allgather, DType: tensor.Float32, Name: "x", Device: CPUDevice, Shape: tensor.Shape{2, 3}},
		Barrier:   {Type: Barrier, Name: "x", Device: CPUDevice},
	}
	changes := []struct {
		name   string
		change func(*Request)
		miss   []RequestType // the types for which it makes a difference
	}{
		{"nothing", func(*Request) {}, nil},
		{"name", func(r *Request) { r.Name = "y" }, []RequestType{Allreduce, Broadcast, Allgather, Barrier}},
		{"type", func(r *Request) { r.Type++ }, []RequestType{Allreduce, Broadcast, Allgather, Barrier}},
		{"dtype", func(r *Request) { r.DType++ }, []RequestType{Allreduce, Broadcast, Allgather, Barrier}},
		{"kind of device", func(r *Request) { r.Device = -3 - r.Device }, []RequestType{Allreduce, Allgather, Barrier}},
		{"number of dimensions", func(r *Request) { r.Shape = append(tensor.Shape{2, 3}, 1) }, []RequestType{Allreduce, Broadcast, Allgather}},
		{"no dimensions", func(r *Request) { r.Shape = nil }, []RequestType{Allreduce, Broadcast, Allgather}},
		{"first dimension", func(r *Request) { r.Shape = tensor.Shape{4, 3} }, []RequestType{Allreduce, Broadcast, Allgather}},
		{"second dimension", func(r *Request) { r.Shape = tensor.Shape{2, 4} }, []RequestType{Allreduce, Broadcast, Allgather}},
		{"reduce op", func(r *Request) { r.ReduceOp++ }, []RequestType{Allreduce}},
		{"prescale", func(r *Request) { r.Prescale = 2 }, []RequestType{Allreduce}},
		{"postscale", func(r *Request) { r.Postscale = 2 }, []RequestType{Allreduce}},
		{"root", func(r *Request) { r.Root++ }, []RequestType{Broadcast}},
	}
	for typ, req := range base {
		other := req
		if typ == Allgather {
			other.Shape = tensor.Shape{4, 3} // member 0's; this is member 1
		}
		resp := merge([]*Request{&other, &req})
		resp.Slot, resp.Gen = 5, 6
		w := NewWorker(1)
		w.Apply(resp)
		for _, c := range changes {
			r := req
			c.change(&r)
			want := true
			for _, m := range c.miss {
				want = want && m != typ
			}
			if slot, gen, cached := w.Lookup(&r); cached != want || cached && (slot != 5 || gen != 6) {
				t.Errorf("%v, %s changed: slot %d gen %d, cached %v, want %v", typ, c.name, slot, gen, cached, want)
			}
		}
		// What a mark stands for is what this member would have posted.
		if q := resp.request(1); !resp.answers(q, 1) || resp.answers(q, 0) != (typ != Allgather) {
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
	r := Request{Type: Allgather, Name: "x", Shape: tensor.Shape{2}}
	resp := merge([]*Request{&r})
	resp.Slot = 0
	w := NewWorker(1)
	w.Apply(resp)
	if _, _, cached := w.Lookup(&r); cached {
		t.Error("cached")
	}
}

func TestApplyReplaces(t *testing.T) {
	w := NewWorker(0)
	req := func(name string) *Request { return &Request{Type: Allreduce, Name: name, Shape: tensor.Shape{1}} }
	apply := func(name string, slot, gen uint32, err string) *Response {
		resp := merge([]*Request{req(name)})
		resp.Slot, resp.Gen, resp.Err = slot, gen, err
		w.Apply(resp)
		return resp
	}
	known := func(name string) bool {
		_, _, cached := w.Lookup(req(name))
		return cached
	}
	resolve := func(slot uint32) string {
		resp, err := w.Slot(slot)
		if err != nil {
			return ""
		}
		return resp.Name
	}

	given := apply("a", 0, 1, "")
	held, _ := w.Slot(0)
	given.Shape[0] = 9 // the caller's to reuse
	if !known("a") || resolve(0) != "a" {
		t.Error("a is not known")
	}
	apply("b", 0, 2, "")
	if known("a") || !known("b") || resolve(0) != "b" {
		t.Error("b has not taken the slot of a")
	}
	if held.Name != "a" || held.Gen != 1 {
		t.Errorf("a Response that is held was changed: %+v", held)
	}
	apply("b", 3, 1, "")
	if resolve(0) != "" || resolve(3) != "b" {
		t.Error("b has two slots")
	}
	apply("b", NoSlot, 0, "")
	if known("b") || resolve(3) != "" {
		t.Error("b has kept a slot that was retired")
	}
	apply("b", 3, 3, "")
	apply("b", 3, 4, "mismatch")
	if known("b") || resolve(3) != "" {
		t.Error("b has kept its slot in spite of an error")
	}
	if _, err := w.Slot(1 << 31); err == nil {
		t.Error("a slot that never was is resolved")
	}
}

func warmWorker() (*Worker, *Request) {
	w := NewWorker(1)
	r := &Request{Type: Allgather, DType: tensor.Float32, Name: "layer4.conv2.weight", Device: CPUDevice, Shape: tensor.Shape{64, 3, 3}}
	resp := merge([]*Request{r, r})
	resp.Slot = 7
	w.Apply(resp)
	return w, r
}

func TestLookupDoesNotAllocate(t *testing.T) {
	w, r := warmWorker()
	n := testing.AllocsPerRun(100, func() {
		slot, _, cached := w.Lookup(r)
		if resp, err := w.Slot(slot); !cached || err != nil || resp.Name != r.Name {
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
