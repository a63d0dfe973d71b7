package liveness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// TestJudgement says what a rank concludes from the answers to its heartbeat, and from silence.
func TestJudgement(t *testing.T) {
	var links []transport.Silence
	h := newHeartbeat(30 * time.Second)
	h.describe = func(r int) string { return fmt.Sprintf("rank %d", r) }
	h.reason = func(int) string { return "" }
	h.links = []transport.Pulsed{fakeLinks{&links}}
	kernel, known := time.Duration(0), true
	h.mute = func() (time.Duration, bool) { return kernel, known }
	judge := func(silent, mute time.Duration) string {
		var all []rendezvous.Silence
		if silent > 0 {
			all = append(all, rendezvous.Silence{Rank: 2, For: silent})
		}
		if err := h.judge(all, mute); err != nil {
			return err.Error()
		}
		return ""
	}
	expect := func(what, got, part string) {
		t.Helper()
		if (part == "") != (got == "") || !strings.Contains(got, part) {
			t.Errorf("%s: %q, want %q", what, got, part)
		}
	}
	expect("all well", judge(0, 0), "")
	expect("a short silence", judge(10*time.Second, 0), "")
	expect("a long silence", judge(29*time.Second, 0), "rank 2 is lost")
	expect("a stopped launcher", judge(0, time.Minute), "")
	kernel = time.Minute
	expect("a launcher that is cut off", judge(0, time.Minute), "the launcher is lost")
	kernel, known = 0, false
	expect("a launcher of whom nothing is known", judge(0, time.Minute), "the launcher is lost")
	known, h.server = true, "rank 0"
	expect("a stopped rank that serves", judge(0, time.Minute), "rank 0, which serves the rendezvous, is lost")
	h.server = ""
	links = []transport.Silence{{Rank: 4, Addr: "a:1", For: 2 * time.Second},
		{Rank: 5, Addr: "b:1", For: 29 * time.Second}}
	expect("a cut link", judge(0, 0), "rank 5 is lost")
}

type fakeLinks struct{ silent *[]transport.Silence }

func (f fakeLinks) Beat(time.Duration) []transport.Silence { return *f.silent }
func (f fakeLinks) Rest()                                  {}
