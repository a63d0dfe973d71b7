package overview

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestALateRankIsAskedWhereItIs checks who is asked, and what the stacks make of the sentence.
func TestALateRankIsAskedWhereItIs(t *testing.T) {
	f := newFilm(4)
	at := func(last ...feed.Frame) []feed.Frame {
		return append([]feed.Frame{{File: "x/train.py", Func: "<module>", Line: 9}, {File: "x/train.py", Func: "train",
			Line: 52}}, last...)
	}
	load := feed.Frame{File: "x/data.py", Func: "Set.load", Line: 7}
	read := feed.Frame{File: "x/io.py", Func: "read", Line: 3}
	var stack []feed.Frame
	wait := func(i int, r *feed.Figures) {
		r.Stack = nil
		r.CPU += 1e9
		if i == 3 {
			r.Stack = stack
			return
		}
		age := uint64(1e8)
		if len(r.Waits) > 0 {
			age += r.Waits[0].Age + 9e8
		}
		r.Waits = []feed.Wait{{Name: "x", Op: "ALLREDUCE", Age: age}}
	}
	if s := f.second(wait); s.Where != nil || len(f.blamed) > 0 {
		t.Errorf("%+v, ranks %v are asked", s.Where, f.blamed)
	}
	if s := f.seconds(2, wait); s.Where != nil || !slices.Equal(f.blamed, []int{3}) {
		t.Errorf("%+v, ranks %v are asked", s.Where, f.blamed)
	}
	stack = at(load)
	s := f.second(wait)
	if want := (&Where{3, "its program is in Set.load (x/data.py:7).", []string{"<module> (x/train.py:9)",
		"train (x/train.py:52)", "Set.load (x/data.py:7)"}}); !reflect.DeepEqual(s.Where, want) {
		t.Errorf("%+v, not %+v", s.Where, want)
	}
	for _, c := range []struct {
		stack []feed.Frame
		n     int
		text  string
	}{
		{at(load), 7, "its program has been in Set.load (x/data.py:7) for 7.0 s."},
		{at(load, read), 1, "its program is in read (x/io.py:3) now, and " +
			"has been in Set.load (x/data.py:7) all the time."},
		{at(read), 1, "its program is in read (x/io.py:3) now, and has been in train (x/train.py:52) all the time."},
		{[]feed.Frame{read}, 1, "its program is in read (x/io.py:3) now."},
		{[]feed.Frame{read}, 5, "its program has been in read (x/io.py:3) for 5.0 s."},
	} {
		stack = c.stack
		if s := f.seconds(c.n, wait); s.Where == nil || s.Where.Text != c.text {
			t.Errorf("%+v, not %q", s.Where, c.text)
		}
	}
	stack = nil
	if s := f.second(wait); s.Where != nil {
		t.Errorf("%+v without a stack", s.Where)
	}
	if f.seconds(8, func(_ int, r *feed.Figures) { works(r, 0.9); r.Waits = nil }); len(f.blamed) > 0 {
		t.Errorf("ranks %v are asked though nobody waits", f.blamed)
	}
}

// TestStacksAreForThoseWhoMaySeeOutput checks both forms of a Snapshot, and that the ranks to inspect are set once.
func TestStacksAreForThoseWhoMaySeeOutput(t *testing.T) {
	j, asked := New(), [][]int{}
	j.Form(2, 0, func() int { return 2 }, func() {
		f := &feed.Figures{Pending: 1}
		f.SetWaits([]feed.Wait{{Name: "x", Op: "ALLREDUCE", Age: 5e9}})
		j.Take(0, 1, "", f.Append(nil))
		f = &feed.Figures{}
		if len(asked) > 0 && len(asked[len(asked)-1]) > 0 {
			f.Stack = []feed.Frame{{File: "a/b.py", Func: "secret", Line: 1}}
		}
		j.Take(1, 1, "", f.Append(nil))
	})
	j.SetInspect(func(ranks []int) { asked = append(asked, ranks) })
	defer j.Follow()()
	for range 5 {
		j.tick(time.Now())
	}
	if !reflect.DeepEqual(asked, [][]int{{1}}) {
		t.Errorf("asked %v", asked)
	}
	public, _ := j.Last(false)
	private, _ := j.Last(true)
	var s Snapshot
	if strings.Contains(string(public), "secret") || json.Unmarshal(private, &s) != nil || s.Where == nil ||
		!strings.Contains(s.Where.Text, "secret (a/b.py:1)") {
		t.Errorf("public: %s\nprivate: %s", public, private)
	}
}
