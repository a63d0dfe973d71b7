package operation

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// TestTableIsWhole finds lines of the table that lack something on which other packages rely.
func TestTableIsWhole(t *testing.T) {
	names, labels := map[string]Kind{}, map[string]Kind{}
	for _, k := range All() {
		d := k.Describe()
		if k == NamedBarrier { // users see a barrier
			if other := Barrier.Describe(); d.Name != other.Name || d.Label != other.Label {
				t.Errorf("a barrier with a name is called %q and %q, not %q and %q", d.Name, d.Label, other.Name,
					other.Label)
			}
		} else {
			if other, taken := names[d.Name]; taken || d.Name == "" {
				t.Errorf("kind %d is called %q, as kind %d is", k, d.Name, other)
			}
			if other, taken := labels[d.Label]; taken || d.Label == "" {
				t.Errorf("kind %d has the label %q, as kind %d has", k, d.Label, other)
			}
			names[d.Name], labels[d.Label] = k, k
		}
		users := d.Role == Collective || d.Role == Meeting
		if users != (d.Noname() != "") {
			t.Errorf("%s: its operations without a name begin with %q", d.Name, d.Noname())
		}
		if d.Role != Collective {
			if d.Ops != 0 || d.Output != Nothing || d.Fuses || d.Activity != "" {
				t.Errorf("%s moves no data, and yet is said to", d.Name)
			}
			continue
		}
		if d.Activity == "" || d.Types == 0 || d.Output == Nothing {
			t.Errorf("%s moves data, and the table does not say how", d.Name)
		}
		if combines := d.Ops != 0; combines != d.Has(Factors) {
			t.Errorf("%s: reduce operations %v, factors agreed on %v", d.Name, d.Ops, d.Has(Factors))
		}
		if shaped := d.Has(Shape); shaped == d.Has(Tail) {
			t.Errorf("%s: ranks agree on all dimensions %v, and on all but the first %v", d.Name, shaped, d.Has(Tail))
		}
		if d.Fuses && (d.Has(Root) || d.Output == Sent) {
			t.Errorf("%s fuses, and what a member gets is up to the members' sizes or to a root", d.Name)
		}
		if d.Has(Table) && (d.Output != OfKeys || d.Has(Root) || !d.Has(Tail)) {
			t.Errorf("%s has a table, and a root or other rows", d.Name)
		}
		if d.Absent == NeedsTheRoot && !d.Has(Root) {
			t.Errorf("%s needs a root that it has not", d.Name)
		}
	}
	if Kind(77).Valid() || Kind(77).String() != "request type 77" {
		t.Errorf("kind 77 is %v", Kind(77))
	}
}

func TestSharesAddUp(t *testing.T) {
	for size := 1; size <= 7; size++ {
		for rows := int64(0); rows <= 20; rows++ {
			sum, last := int64(0), rows
			for m := range size {
				share := Share(rows, m, size)
				if share > last || share < 0 {
					t.Errorf("%d rows of %d: member %d has %d, the one before it %d", rows, size, m, share, last)
				}
				sum, last = sum+share, share
			}
			if sum != rows || Share(rows, 0, size)-last > 1 {
				t.Errorf("%d rows of %d members: the shares add up to %d, and the last is %d", rows, size, sum, last)
			}
		}
	}
}

func TestMeanings(t *testing.T) {
	if k := Of(Allreduce, tensor.Adasum); k != Adasum {
		t.Errorf("an allreduce with Adasum is %v", k)
	}
	if k := Of(Reducescatter, tensor.Adasum); k != Reducescatter {
		t.Errorf("a reducescatter with Adasum is %v", k)
	}
	for _, c := range []struct {
		k         Kind
		op, wants tensor.ReduceOp
		postscale float64
	}{
		{Allreduce, tensor.Average, tensor.Average, 3}, // ranks compare it as an Average, and combine it as a Sum later
		{Reducescatter, tensor.Average, tensor.Sum, 0.75},
		{Reducescatter, tensor.Sum, tensor.Sum, 3},
		{Adasum, tensor.Average, tensor.Average, 3}, // an Average has no meaning for Adasum
		{Broadcast, tensor.Average, tensor.Average, 3},
	} {
		if op, postscale := c.k.Describe().Requested(c.op, 3, 4); op != c.wants || postscale != c.postscale {
			t.Errorf("%v with %v asks for %v and postscale %v", c.k, c.op, op, postscale)
		}
	}
	if op, postscale := Combine(tensor.Average, 3, 4); op != tensor.Sum || postscale != 0.75 {
		t.Errorf("the average of 4, times 3, is %v times %v", op, postscale)
	}
	if got := elementwise.String(); got != "AVERAGE, SUM, MIN, MAX and PRODUCT" {
		t.Error(got)
	}
	if got := floats.String(); got != "float16, float32, float64 and bfloat16" {
		t.Error(got)
	}
	if !slices.Equal(floats.List(), []tensor.DType{tensor.Float16, tensor.Float32, tensor.Float64, tensor.BFloat16}) {
		t.Error(floats.List())
	}
	if got := string(AppendMember(nil, "g", 0, 12)); got != "g_1of12" {
		t.Error(got)
	}
}

// TestFacts checks the facts on which front ends rely.
func TestFacts(t *testing.T) {
	var f struct {
		Operations []struct {
			Name      string
			Number    int
			Output    string
			ReduceOps []struct {
				Number       int
				ElementTypes []int `json:"element_types"`
			} `json:"reduce_ops"`
		}
	}
	if err := json.Unmarshal([]byte(Facts()), &f); err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int{}
	for _, o := range f.Operations {
		k := Kind(o.Number)
		if !strings.HasSuffix(o.Name, strings.ToLower(k.Describe().Name)) || o.Output == "" || o.Name == "adasum" {
			t.Errorf("kind %d is said to be %q with the output %q", k, o.Name, o.Output)
		}
		if other, taken := numbers[o.Name]; taken {
			t.Errorf("kinds %d and %d are both called %q", other, k, o.Name)
		}
		numbers[o.Name] = o.Number
		for _, r := range o.ReduceOps {
			types := tensor.NumReducible
			switch tensor.ReduceOp(r.Number) {
			case tensor.Adasum:
				types = len(floats.List())
			case tensor.Average: // all but bool
				types--
			case tensor.BitAnd, tensor.BitOr, tensor.BitXor:
				types -= len(floats.List())
			}
			if len(r.ElementTypes) != types {
				t.Errorf("%s with %v takes %v", o.Name, tensor.ReduceOp(r.Number), r.ElementTypes)
			}
		}
	}
}
