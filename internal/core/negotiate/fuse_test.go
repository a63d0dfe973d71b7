package negotiate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// responses makes one Response for each word. A word like "f32:100" is an Allreduce of 100 bytes; after "a" it is an
// Adasum, after "s" a Reducescatter, and after "g" an Allgather; "!" marks an error; "b" is a broadcast of 4 bytes.
// "@g" at the end puts the Response into group g. "*" says that it is executed alone.
func responses(t testing.TB, words string) []*Response {
	var rs []*Response
	for i, w := range strings.Fields(words) {
		r := &Response{Type: operation.Allreduce, Name: fmt.Sprint(i), ReduceOp: tensor.Sum, Device: CPUDevice,
			Prescale: 1, Postscale: 1, Card: NoCard}
		var n int64
		w, r.Alone = strings.CutSuffix(w, "*")
		w, r.Group, _ = strings.Cut(w, "@")
		for prefix, kind := range map[string]operation.Kind{"af": operation.Adasum, "sf": operation.Reducescatter,
			"gf": operation.Allgather} {
			if strings.HasPrefix(w, prefix) {
				r.Type, w = kind, w[1:]
			}
		}
		switch {
		case w == "!":
			r.Err = "mismatch"
		case w == "b":
			r.Type, r.Shape = operation.Broadcast, tensor.Shape{4}
		default:
			dtype, size, _ := strings.Cut(w, ":")
			r.DType = map[string]tensor.DType{"u8": tensor.Uint8, "i8": tensor.Int8, "f32": tensor.Float32,
				"f64": tensor.Float64}[dtype]
			if _, err := fmt.Sscan(size, &n); err != nil {
				t.Fatal(err)
			}
			r.Shape = tensor.Shape{n / int64(r.DType.Size())}
		}
		rs = append(rs, r)
	}
	return rs
}

func TestFuse(t *testing.T) {
	for _, tc := range []struct {
		name      string
		responses string
		threshold int64
		plan      string // the responses' indexes, batches in brackets
	}{
		{"nothing", "", 100, "[]"},
		{"all fit", "f32:40 f32:40 f32:20", 100, "[[0 1 2]]"},
		{"past the threshold", "f32:40 f32:40 f32:24 f32:4", 100, "[[0 1] [2 3]]"},
		{"a full batch stays closed", "f32:60 f32:60 f32:40 f32:40", 100, "[[0] [1 2] [3]]"},
		{"exactly the threshold", "f32:100 f32:4", 100, "[[0] [1]]"},
		{"too large goes alone and closes nothing", "f32:40 f32:104 f32:40", 100, "[[0 2] [1]]"},
		{"looks past others", "f32:40 f64:40 b f32:40 ! f64:40", 100, "[[0 3] [1 5] [2] [4]]"},
		{"threshold 0", "f32:4 f32:4 u8:0 u8:0", 0, "[[0] [1] [2] [3]]"},
		{"empty tensors", "f32:0 f32:0 f32:100", 100, "[[0 1 2]]"},
		{"Adasum is apart", "f32:4 af32:4 f32:4 af32:4 af64:4", 100, "[[0 2] [1 3] [4]]"},
		{"reducescatters and allgathers join their kind", "f32:4 sf32:4 gf32:4 sf32:40 gf32:4 sf64:8 sf32:60 gf32:4",
			100, "[[0] [1 3] [2 4 7] [5] [6]]"},
		{"groups are no border", "f32:4@g f32:4@h f32:4", 100, "[[0 1 2]]"},
		{"alone", "f32:4 f32:4* f32:4 f32:4*", 100, "[[0 2] [1] [3]]"},
		{"broadcasts and errors are alone", "b b ! !", 100, "[[0] [1] [2] [3]]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := [][]string{}
			rs := responses(t, tc.responses)
			for _, b := range Fuse(nil, rs, tc.threshold, FuseOptions{}) {
				var names []string
				for i, r := range b.Responses {
					names = append(names, r.Name)
					if rs[b.Places[i]] != r {
						t.Errorf("%s is at place %d", r.Name, b.Places[i])
					}
				}
				plan = append(plan, names)
			}
			if got := fmt.Sprint(plan); got != tc.plan {
				t.Errorf("got %s, want %s", got, tc.plan)
			}
		})
	}
}

// TestFuseGroupsApart: a group joins nothing else, and is still split at the threshold.
func TestFuseGroupsApart(t *testing.T) {
	rs := responses(t, "f32:40@g f32:4 f32:40@h f32:40@g f64:8@g f32:4 f32:40@g f32:40@h af32:4@h")
	var plan [][]string
	for _, b := range Fuse(nil, rs, 100, FuseOptions{Groups: true}) {
		var names []string
		for _, r := range b.Responses {
			names = append(names, r.Name)
		}
		plan = append(plan, names)
	}
	if got, want := fmt.Sprint(plan), "[[0 3] [1 5] [2 7] [4] [6] [8]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFuseWithResults: a Response that has come with its result is alone, and the others join as if it was not there.
func TestFuseWithResults(t *testing.T) {
	rs := responses(t, "f32:40 f32:40 f32:40 f32:20 f32:4")
	results := [][]byte{nil, {1}, nil, {2}, nil}
	plan := Fuse(nil, rs, 100, FuseOptions{Results: results})
	got := ""
	for _, b := range plan {
		got += fmt.Sprint(b.Places, b.Result, " ")
	}
	if want := "[0 2 4] [] [1] [1] [3] [2] "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, b := range Fuse(plan[:0], rs, 100, FuseOptions{}) {
		if b.Result != nil {
			t.Errorf("places %v have the result of an earlier plan", b.Places)
		}
	}
}

// TestFuseManyKinds: with more kinds than Fuse keeps open, the plan is still right, but Fuse no longer gathers the kind
// that was opened first.
func TestFuseManyKinds(t *testing.T) {
	var rs []*Response
	for range 2 {
		for kind := range maxOpen + 1 {
			rs = append(rs, &Response{Type: operation.Allreduce, DType: tensor.Uint8, Shape: tensor.Shape{1},
				Prescale: float64(kind)})
		}
	}
	for n := range maxOpen + 2 {
		got := len(Fuse(nil, append(rs[:n:n], rs[:n]...), 100, FuseOptions{}))
		want := n
		if n > maxOpen {
			want = 2 * n // each Batch is closed just before its second Response comes
		}
		if got != want {
			t.Errorf("%d kinds: %d batches, want %d", n, got, want)
		}
	}
}

// TestFuseInvalidShape: a shape that cannot be counted has a Batch of its own, of 0 bytes.
func TestFuseInvalidShape(t *testing.T) {
	rs := responses(t, "f32:4 f32:4 f32:4")
	rs[1].Shape = tensor.Shape{1 << 62, 4}
	plan := Fuse(nil, rs, 100, FuseOptions{})
	if len(plan) != 2 || len(plan[0].Responses) != 2 || plan[1].Bytes != 0 {
		t.Errorf("plan %+v", plan)
	}
}

func steadyBatch(t testing.TB) []*Response {
	return responses(t, strings.Repeat("f32:4096 f32:1024 f64:512 b f32:1000000 ", 40))
}

func TestFuseDoesNotAllocate(t *testing.T) {
	rs := steadyBatch(t)
	few := rs[:7]
	plan := Fuse(nil, rs, 64<<10, FuseOptions{})
	// A short plan in between leaves the memory of the long one as it was.
	n := testing.AllocsPerRun(20, func() {
		plan = Fuse(plan[:0], few, 64<<10, FuseOptions{})
		plan = Fuse(plan[:0], rs, 64<<10, FuseOptions{})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFuse(b *testing.B) {
	rs := steadyBatch(b)
	plan := Fuse(nil, rs, 64<<10, FuseOptions{})
	b.ReportAllocs()
	for b.Loop() {
		plan = Fuse(plan[:0], rs, 64<<10, FuseOptions{})
	}
}
