package negotiate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// TestJoinReleasesAGroupOnce: the last join completes tallies. Some of them may be answered with their group before
// their turn.
func TestJoinReleasesAGroupOnce(t *testing.T) {
	c := NewCoordinator([]int{0, 1}, newModelBoard(2, 0, false), Options{})
	in := func(name string) *Request { return &Request{Name: name, Group: "g", GroupSize: 2} }
	join := &Request{Type: operation.Join, Name: "join.noname"}
	var got []string
	for _, s := range []struct {
		from int
		r    *Request
	}{{0, in("a")}, {0, in("b")}, {1, in("b")}, {0, join}, {1, join}} {
		resps, err := c.Step([]int{s.from}, s.r)
		if err != nil {
			t.Fatal(err)
		}
		for _, resp := range resps {
			got = append(got, resp.Name)
		}
	}
	if want := "[a b join.noname]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestAJoinChargesNobody: neither the Response to the join nor those to the names that it completes say that a member
// was late.
func TestAJoinChargesNobody(t *testing.T) {
	c := NewCoordinator([]int{4, 5, 6}, newModelBoard(3, 0, false), Options{})
	if _, err := c.Step([]int{1}, &Request{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for _, m := range []int{1, 2, 0} {
		resps, err := c.Step([]int{m}, &Request{Type: operation.Join, Name: "join.noname"})
		if err != nil {
			t.Fatal(err)
		}
		for _, resp := range resps {
			var read Response
			if err := read.Decode(resp.Append(nil)); err != nil {
				t.Fatal(err)
			}
			got[read.Name] = read.Last
		}
	}
	if len(got) != 2 || got["x"] != -1 || got["join.noname"] != -1 {
		t.Errorf("the last members are %v", got)
	}
}

// TestJoinOfFalseCards: a board that breaks the contract is noticed, also when all cards are retired.
func TestJoinOfFalseCards(t *testing.T) {
	for _, typ := range []operation.Kind{operation.Join, operation.Settle} {
		c := NewCoordinator([]int{7, 9}, falseCards{Cards: newModelBoard(2, 1, false)}, Options{Capacity: 1})
		for range 2 {
			step(t, c, &Request{Name: "x"})
		}
		_, err := c.Step([]int{1}, &Request{Type: typ, Name: "join.noname"})
		if err == nil || !strings.Contains(err.Error(), `"x": its card 0 cannot be retired`) {
			t.Errorf("%v: got %v", typ, err)
		}
	}
}

// TestJoinLeavesNothing: after joins the coordinator is as it was before.
func TestJoinLeavesNothing(t *testing.T) {
	const members = 3
	c := NewCoordinator([]int{0, 1, 2}, newModelBoard(members, 2, false), Options{Capacity: 2})
	for range 3 {
		for range 3 {
			step(t, c, &Request{Name: "x", Group: "g", GroupSize: 1})
		}
		for m := range members {
			if _, err := c.Step([]int{m}, &Request{Name: fmt.Sprint("pending", m)}); err != nil {
				t.Fatal(err)
			}
		}
		step := 0
		for m := range members {
			resps, err := c.Step([]int{m}, &Request{Type: operation.Join, Name: "join.noname"})
			if err != nil {
				t.Fatal(err)
			}
			step += len(resps)
		}
		if step != members+1 || len(c.open) != 0 || len(c.groups.held) != 0 || len(c.byCard) != 0 ||
			len(c.Joined()) != 0 {
			t.Errorf("%d responses; left: %d tallies, %d groups, %d cards, joined %v", step, len(c.open),
				len(c.groups.held), len(c.byCard), c.Joined())
		}
	}
}
