package negotiate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

var _ Cards = transport.Coordination(nil)

// step sends r from all members in order and returns the Response to the last.
func step(t testing.TB, c *Coordinator, r *Request) *Response {
	t.Helper()
	for m := range c.members {
		resps, err := c.Step([]int{m}, r)
		if err != nil {
			t.Fatal(err)
		}
		if m == len(c.members)-1 && len(resps) == 1 {
			if int(resps[0].Last) != m {
				t.Fatalf("member %d was the last, not %d", m, resps[0].Last)
			}
			return resps[0]
		}
		if len(resps) != 0 {
			t.Fatalf("member %d completes the set", m)
		}
	}
	t.Fatal("no response")
	return nil
}

// TestOneTimeNames: names that are used once neither take cards nor stay in memory, and names that come again keep
// their cards.
func TestOneTimeNames(t *testing.T) {
	const capacity = 4
	c := NewCoordinator([]int{0, 1}, newModelBoard(2, capacity, false), Options{Capacity: capacity})
	steady := func(i int) *Request { return &Request{Name: fmt.Sprintf("steady.%d", i), Shape: tensor.Shape{3}} }
	for range 2 {
		for i := range capacity {
			step(t, c, steady(i))
		}
	}
	for i := range 1000 {
		if resp := step(t, c, &Request{Name: fmt.Sprintf("allreduce.noname.%d", i)}); resp.Card != NoCard {
			t.Fatalf("%s has card %d", resp.Name, resp.Card)
		}
	}
	for i := range capacity {
		if c.byName[steady(i).Name] == nil {
			t.Errorf("steady.%d has lost its card", i)
		}
	}
	limit := 4*capacity + 64
	if len(c.open) != 0 || len(c.spare) != 1 || len(c.recent.at) != limit || len(c.recent.ring) != limit {
		t.Errorf("%d open, %d spare, %d of %d recent", len(c.open), len(c.spare), len(c.recent.at), limit)
	}
	// The window is first in, first out.
	if resp := step(t, c, &Request{Name: fmt.Sprintf("allreduce.noname.%d", 1000-limit)}); resp.Card == NoCard {
		t.Error("the oldest name in the window is forgotten")
	}
	if resp := step(t, c, &Request{Name: fmt.Sprintf("allreduce.noname.%d", 1000-limit-1)}); resp.Card != NoCard {
		t.Error("a name before the window is remembered")
	}
}

// TestRetiredNameIsRemembered: a name that lost its card to a mismatch has one again in the next round, however long
// ago it came first.
func TestRetiredNameIsRemembered(t *testing.T) {
	c := NewCoordinator([]int{0, 1}, newModelBoard(2, 1, false), Options{Capacity: 1})
	x := &Request{Name: "x", Shape: tensor.Shape{3}}
	step(t, c, x)
	step(t, c, x)
	for i := range 1000 {
		step(t, c, &Request{Name: fmt.Sprint(i)})
	}
	if _, err := c.Step([]int{0}, x); err != nil {
		t.Fatal(err)
	}
	resps, err := c.Step([]int{1}, &Request{Name: "x", Shape: tensor.Shape{4}})
	if err != nil || len(resps) != 1 || resps[0].Err == "" {
		t.Fatalf("%+v, %v", resps, err)
	}
	if resp := step(t, c, x); resp.Card == NoCard {
		t.Error("it has no card")
	}
}

// TestSecondSightNeedsEqualParameters: parameters that alternate never get a card.
func TestSecondSightNeedsEqualParameters(t *testing.T) {
	c := NewCoordinator([]int{0}, newModelBoard(1, 4, false), Options{Capacity: 4})
	for i := range 10 {
		if resp := step(t, c, &Request{Name: "x", Shape: tensor.Shape{int64(i % 2)}}); resp.Card != NoCard {
			t.Fatalf("round %d has card %d", i, resp.Card)
		}
	}
	if resp := step(t, c, &Request{Name: "x", Shape: tensor.Shape{1}}); resp.Card == NoCard {
		t.Error("no card at second sight")
	}
}

// TestStepKeepsNothingOfTheRequest: the caller may decode the next one into it.
func TestStepKeepsNothingOfTheRequest(t *testing.T) {
	c := NewCoordinator([]int{0, 1}, newModelBoard(2, 0, false), Options{})
	r := &Request{Name: "x", Shape: tensor.Shape{3}}
	if _, err := c.Step([]int{0}, r); err != nil {
		t.Fatal(err)
	}
	r.Shape[0] = 4
	r.Name = "y"
	resps, err := c.Step([]int{1}, &Request{Name: "x", Shape: tensor.Shape{3}})
	if err != nil || len(resps) != 1 || resps[0].Err != "" || resps[0].Name != "x" {
		t.Errorf("%+v, %v", resps, err)
	}
}

// falseCards is a board that breaks the contract.
type falseCards struct {
	Cards
	marked []int
	ok     bool
}

func (s falseCards) Retire(uint32) ([]int, bool) { return s.marked, s.ok }

func TestStepViolations(t *testing.T) {
	for _, tc := range []struct {
		err   string
		cards falseCards
		from  int
	}{
		{"from member -1 of 2", falseCards{}, -1},
		{"from member 2 of 2", falseCards{}, 2},
		{"its card 0 cannot be retired", falseCards{}, 1},
		{"false mark of member 2", falseCards{marked: []int{2}, ok: true}, 1},
		{"false mark of member -1", falseCards{marked: []int{-1}, ok: true}, 1},
		{"false mark of member 0", falseCards{marked: []int{0, 0}, ok: true}, 1},
		{"rank 9 sent it again", falseCards{marked: []int{1}, ok: true}, 1},
	} {
		tc.cards.Cards = newModelBoard(2, 1, false)
		c := NewCoordinator([]int{7, 9}, tc.cards, Options{Capacity: 1})
		for range 2 {
			step(t, c, &Request{Name: "x", Shape: tensor.Shape{3}})
		}
		_, err := c.Step([]int{tc.from}, &Request{Name: "x", Shape: tensor.Shape{4}})
		if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("got %v, want an error with %q", err, tc.err)
		}
	}
}

// TestPendingOrder: names are reported in the order in which they were first asked for, whichever tallies were used
// before.
func TestPendingOrder(t *testing.T) {
	c := NewCoordinator([]int{0, 1, 2}, newModelBoard(3, 0, false), Options{})
	for i := range 5 {
		step(t, c, &Request{Name: fmt.Sprint("done", i)})
	}
	for _, name := range []string{"q", "b", "z", "a"} {
		if _, err := c.Step([]int{1}, &Request{Name: name, Type: operation.Broadcast}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	c.Pending(func(name string, typ operation.Kind, present, missing []int) {
		got = append(got, fmt.Sprintf("%s %v %v %v", name, typ, present, missing))
	})
	want := "[q BROADCAST [1] [0 2] b BROADCAST [1] [0 2] z BROADCAST [1] [0 2] a BROADCAST [1] [0 2]]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLongestErrorFitsARecord: many members, each with another shape of many
// long dimensions, and a name of the greatest length.
func TestLongestErrorFitsARecord(t *testing.T) {
	const members = 2000
	world := make([]int, members)
	for i := range world {
		world[i] = 1_000_000 + 2*i
	}
	c := NewCoordinator(world, newModelBoard(members, 0, false), Options{})
	var resp *Response
	for m := range world {
		shape := make(tensor.Shape, MaxDims)
		for d := range shape {
			shape[d] = math.MaxInt64
		}
		shape[0] -= int64(m % 16) // so that each value has many ranks that are not adjacent
		resps, err := c.Step([]int{m}, &Request{Name: strings.Repeat("n", MaxName), Group: strings.Repeat("g", MaxName),
			GroupSize: 1, Shape: shape})
		if err != nil {
			t.Fatal(err)
		}
		if len(resps) > 0 {
			resp = resps[0]
		}
	}
	if len(resp.Err) > maxErr || !strings.HasSuffix(resp.Err, "; and 8 more)") || !strings.Contains(resp.Err,
		", and 109 more: [") {
		t.Errorf("%d bytes: …%s", len(resp.Err), resp.Err[len(resp.Err)-100:])
	}
	p := resp.Append(nil)
	if len(p) > transport.MaxRecord {
		t.Errorf("%d bytes", len(p))
	}
	if err := new(Response).Decode(p); err != nil {
		t.Error(err)
	}
}

// TestLongestSetsFitARecord: many members, each with another set of the most
// ranks, or in a group of another long name.
func TestLongestSetsFitARecord(t *testing.T) {
	const members = 100
	for _, typ := range []operation.Kind{operation.AddProcessSet, operation.Allreduce} {
		c := NewCoordinator(make([]int, members), newModelBoard(members, 0, false), Options{})
		for m := range members {
			r := &Request{Type: typ, Name: "x", Ranks: longRanks(MaxRanks)}
			r.Ranks[0] = int32(m)
			if typ == operation.Allreduce {
				r.Group, r.GroupSize = strings.Repeat("\x00", MaxName-1)+string(rune('!'+m)), 1
			}
			resps, err := c.Step([]int{m}, r)
			if err != nil {
				t.Fatal(err)
			}
			if m < members-1 {
				continue
			}
			if len(resps) != 1 || resps[0].Err == "" {
				t.Fatalf("%v: %v", typ, resps)
			}
			if err := new(Response).Decode(resps[0].Append(nil)); err != nil {
				t.Errorf("%v: %v", typ, err)
			}
		}
	}
}

func TestVariants(t *testing.T) {
	for _, tc := range []struct {
		world  []int
		values string
		want   string
	}{
		{[]int{0, 1}, "a b", "(rank 0: a; rank 1: b)"},
		{[]int{0, 1, 2, 3}, "a a b a", "(ranks 0, 1, 3: a; rank 2: b)"},
		{[]int{0, 1, 2, 3, 7, 8, 9}, "a a a b a a a", "(ranks 0-2, 7-9: a; rank 3: b)"},
	} {
		var reqs []*Request
		for _, v := range strings.Fields(tc.values) {
			reqs = append(reqs, &Request{Name: v})
		}
		c := NewCoordinator(tc.world, nil, Options{})
		if got := c.variants(reqs, func(r *Request) string { return r.Name }); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// TestInvalidEnumerations: values that the codec would refuse fail the tensor if they come from the coordinator's own
// process.
func TestInvalidEnumerations(t *testing.T) {
	for want, r := range map[string]*Request{
		"Operation request type 200 is not supported.": {Type: 200},
		"Unknown data type: dtype(77).":                {DType: 77},
		"ADASUM of int32 is not supported.": {Type: operation.Adasum,
			DType: tensor.Int32},
		"ALLREDUCE with reduce op(9) is not supported.":     {ReduceOp: 9},
		"ALLREDUCE: shape [2, -1]: dimension 1 is negative": {Shape: tensor.Shape{2, -1}},
		"ALLGATHER: shape [-1]: dimension 0 is negative": {Type: operation.Allgather,
			Shape: tensor.Shape{-1}},
		"ALLREDUCE: shape [4611686018427387904] of float64: too many bytes": {DType: tensor.Float64,
			Shape: tensor.Shape{1 << 62}},
	} {
		c := NewCoordinator([]int{0, 1}, newModelBoard(2, 0, false), Options{})
		if resp := step(t, c, r); resp.Err != want {
			t.Errorf("got %q, want %q", resp.Err, want)
		}
	}
}
