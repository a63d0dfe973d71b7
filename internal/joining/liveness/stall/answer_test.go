package stall

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestAnswerSurvivesTheJourney(t *testing.T) {
	pending := []Waiting{
		{Name: "b", Op: "ALLREDUCE", Since: 2 * sec},
		{Set: 3, Name: `quoted "<&>" — ünïcode`, Op: "ALLGATHER", Since: 9 * sec, Phase: Executing},
		{Name: "a", Op: "BROADCAST", Since: 2 * sec, Phase: Unready},
	}
	a, err := decode(encode(pending, "", false))
	want := []Waiting{pending[1], pending[2], pending[0]} // the oldest first, then by name
	if err != nil || a.More != 0 || !slices.Equal(a.Waiting, want) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := decode(encode(nil, "", false)); err != nil || len(a.Waiting)+a.More != 0 {
		t.Errorf("nothing: %+v, %v", a, err)
	}
}

func TestLongAnswersNameTheOldestAndJoins(t *testing.T) {
	pending := []Waiting{{Name: "j", Op: OpJoin}}
	for n := range 100 {
		pending = append(pending, waits(fmt.Sprint("t", n), time.Duration(n+1)*sec))
	}
	a, err := decode(encode(pending, "", false))
	if err != nil || len(a.Waiting) != maxEntries || a.More != 101-maxEntries {
		t.Fatalf("%d and %d more, %v", len(a.Waiting), a.More, err)
	}
	if first, last := a.Waiting[0], a.Waiting[maxEntries-1]; first.Name != "t99" || !last.joined() {
		t.Errorf("first %v, last %v", first, last)
	}
	if pending[0].Name != "j" || pending[1].Name != "t0" {
		t.Error("the caller's list has been changed")
	}
}

// Ranks that wait for the same operations give equal answers, though they have not begun, nor are asked, at the same
// instant. A rank that is blocked stays blocked, however short it has been so.
func TestAnswersOfOneWaitAreEqual(t *testing.T) {
	answer := func(ms time.Duration) []byte {
		var pending []Waiting
		for n := range 10 {
			w := waits(fmt.Sprint("t", n), 12*sec+(ms*time.Duration(n+1)+100)*time.Millisecond)
			w.Blocked = 11*sec + ms*time.Millisecond
			pending = append(pending, w)
		}
		return encode(pending, "train (train.py:3)", false)
	}
	for ms := range time.Duration(80) {
		if string(answer(ms)) != string(answer(0)) {
			t.Fatalf("%d ms later: %s, not %s", ms, answer(ms), answer(0))
		}
	}
	for d, want := range map[time.Duration]time.Duration{0: 0, 1: 1, 900 * time.Millisecond: 1, sec: sec,
		3*sec - 1: 2 * sec} {
		w := waits("t", 5*sec)
		w.Blocked = d
		if a, err := decode(encode([]Waiting{w}, "", false)); err != nil || a.Waiting[0].Blocked != want {
			t.Errorf("blocked for %v: %+v, %v", d, a, err)
		}
	}
}

// Whatever the names are, an answer fits into what a session carries.
func TestAnswersAreBounded(t *testing.T) {
	for _, name := range []string{strings.Repeat(`"`, 1000), strings.Repeat("\x00", 1000), strings.Repeat("\xff", 1000),
		strings.Repeat("…", 1000), strings.Repeat("<", maxName)} {
		var pending []Waiting
		for n := range maxEntries + maxMarks + 20 {
			pending = append(pending, Waiting{Set: math.MaxInt, Name: name + fmt.Sprint(n), Op: name,
				Since: math.MaxInt64, Blocked: math.MaxInt64, Phase: Executing})
		}
		p := encode(pending, "", false)
		if len(p) > 64<<10 {
			t.Errorf("%d bytes for names such as %.10q", len(p), name)
		}
		a, err := decode(p)
		if err != nil || len(a.Waiting) != maxEntries {
			t.Fatalf("%d, %v", len(a.Waiting), err)
		}
		own := tidy(pending)
		for _, w := range a.Waiting {
			if !slices.ContainsFunc(own, func(o Waiting) bool { return o.key() == w.key() }) {
				t.Fatalf("%q is not one of the names on the rank itself", w.Name)
			}
		}
	}
}

func TestLabels(t *testing.T) {
	for name, want := range map[string]string{
		"grad.1":         "grad.1",
		"with space ünï": "with space ünï",
		"\x1b[31mred\n":  "?[31mred?…#3417e759",
		"":               "",
	} {
		if got := label(name); got != want {
			t.Errorf("label(%q) = %q, want %q", name, got, want)
		}
	}
	long := strings.Repeat("é", 1000)
	a, b := label(long+"1"), label(long+"2")
	if a == b || len(a) > maxName || !utf8.ValidString(a) {
		t.Errorf("%q and %q", a, b)
	}
	if label(a) != a {
		t.Errorf("%q changes when it is read", a)
	}
}

func TestFalseAnswersAreBelievedWithinBounds(t *testing.T) {
	entries := strings.TrimSuffix(strings.Repeat(`{"n":"a","t":-5,"p":9},`, 100), ",")
	for _, more := range []string{"-3", "0", "9223372036854775807"} {
		a, err := decode([]byte(`{"w":[` + entries + `],"m":` + more + `}`))
		if err != nil || len(a.Waiting) != maxEntries || a.More < 100-maxEntries {
			t.Fatalf("%d and %d more, %v", len(a.Waiting), a.More, err)
		}
		if w := a.Waiting[0]; w.Since != 0 || w.Phase != Submitted {
			t.Errorf("%+v", w)
		}
	}
	for _, p := range []string{"", "[]", "{", `{"w":[{"n":5}]}`, "\x00"} {
		if _, err := decode([]byte(p)); err == nil {
			t.Errorf("%q is understood", p)
		}
	}
}

// No answer, however false, makes diagnosis or report fail.
func FuzzAnswer(f *testing.F) {
	f.Add(encode([]Waiting{waits("a", 61*sec), {Name: "b", Op: OpJoin}}, "load (a.py:3)", true))
	f.Add([]byte(`{"w":[{"n":"a","t":-5,"p":9,"s":-1}],"m":-3}`))
	f.Add([]byte(`{"w":[{"n":"a","o":"x","p":255}],"m":9223372036854775807}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, p []byte) {
		o := &Options{Describe: func(r int) string { return fmt.Sprint("rank ", r) }, CheckTime: sec,
			ShutdownTime: 2 * sec}
		w := waits("a", 61*sec)
		r := report{Options: o, views: []view{viewOf(answer{Waiting: []Waiting{w}}), viewFrom(p)}, fatal: true}
		r.tensors = []stalled{diagnose(w, []int{0, 1, 2, -1}, r.views)}
		if text := r.text(); len(text) > 20<<10 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\r\x00") {
			t.Errorf("%q", text)
		}
		if r.cause() == nil {
			t.Error("no cause")
		}
	})
}
