package top

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
)

func someJobs(n int) (all []*source) {
	for i := range n {
		pid := 4711 + i
		command := fmt.Sprintf("horovodrun -np 2 python /home/me/src/train_the_model_of_the_year.py --lr 0.%d", i+1)
		all = append(all, &source{job: pid, command: command})
	}
	return all
}

// TestPickAJob presses keys: a name or a character each.
func TestPickAJob(t *testing.T) {
	named := map[string]key{"up": upKey, "down": downKey, "home": homeKey, "end": endKey, "enter": enterKey,
		"esc": escapeKey, "ctrl-c": quitKey}
	for _, c := range []struct {
		jobs            int
		keys            string
		at              int
		picked, leaving bool
	}{
		{3, "enter", 0, true, false},
		{3, "down down down enter", 2, true, false},
		{3, "up j j k enter", 1, true, false},
		{3, "2 enter", 1, true, false},
		{3, "2 3 enter", 2, true, false},
		{3, "9 0 x", 0, false, false},
		{12, "1 2 enter", 11, true, false},
		{12, "1 down 2 enter", 1, true, false},
		{12, "1 3", 2, false, false},
		{3, "end home down", 1, false, false},
		{3, "down q", 1, false, true},
		{3, "esc", 0, false, true},
		{3, "ctrl-c", 0, false, true},
	} {
		p := &picker{jobs: someJobs(c.jobs)}
		for pressed := range strings.FieldsSeq(c.keys) {
			k := named[pressed]
			letter := rune(0)
			if k == otherKey {
				letter = rune(pressed[0])
			}
			p.press(k, letter)
		}
		if p.at != c.at || p.picked != c.picked || p.leaving != c.leaving {
			t.Errorf("%d jobs, %s: at %d, picked %v, leaving %v", c.jobs, c.keys, p.at, p.picked, p.leaving)
		}
	}
}

func TestThePickerFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {30, 8}, {10, 3}, {0, 0}} {
		for at := range 20 {
			p := &picker{jobs: someJobs(20), at: at}
			lines := p.view(size[0], size[1])
			shown := len(lines) <= size[1]
			marked := false
			for _, l := range lines {
				shown = shown && uniseg.StringWidth(l.String()) <= size[0]
				marked = marked || strings.HasPrefix(l.String(), fmt.Sprintf("> %2d", at+1))
			}
			if !shown || marked != (size[1] >= 3) {
				t.Fatalf("%v, at %d: %v", size, at, lines)
			}
		}
	}
	const want = `2 jobs run on this host. Which one?

  1  job 4711: horovodrun -np 2 python train_the_model_of_the_year.py --lr 0.1
> 2  job 4712: horovodrun -np 2 python train_the_model_of_the_year.py --lr 0.2

arrows or number: choose  Enter: watch  q: quit`
	var got []string
	for _, l := range (&picker{jobs: someJobs(2), at: 1}).view(80, 24) {
		got = append(got, l.String())
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\ninstead of\n%s", text, want)
	}
}
