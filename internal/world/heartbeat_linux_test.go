package world

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/test/netns"
)

// untilFailure adds until it fails, says why, and stays until it is told to go, so
// that nobody's end is another's news.
func untilFailure(w *World) {
	for i := 0; ; i++ {
		_, err := add(w, "x", 1)
		if err != nil {
			fmt.Println("told", strings.ReplaceAll(err.Error(), "\n", " "))
			io.Copy(io.Discard, os.Stdin)
			return
		}
		if i == 10 {
			fmt.Println("running", i)
		}
		time.Sleep(time.Millisecond)
	}
}

// lost starts two hosts of two ranks, does something to them while they work, and
// returns what each of the given ranks is told; the limit is three seconds.
func lost(t *testing.T, fault func(hosts [2]netns.Host, ranks []*process), told []int) []string {
	hosts := netns.Two(t, "")
	ranks := startRanks(t, hosts, "rank", 2)
	for r, p := range ranks {
		if _, err := p.line("running"); err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	fault(hosts, ranks)
	began := time.Now()
	texts := make([]string, len(told))
	var telling sync.WaitGroup
	for i, r := range told {
		telling.Go(func() {
			text, err := ranks[r].line("told")
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			texts[i] = text
			t.Logf("rank %d after %v: %s", r, time.Since(began).Round(time.Millisecond), text)
		})
	}
	telling.Wait()
	return texts
}

// A rank whose process is stopped has not died: nobody closes its connections.
func TestAStoppedRankIsLost(t *testing.T) {
	if asRole(t, untilFailure) {
		return
	}
	const victim = 3
	texts := lost(t, func(_ [2]netns.Host, ranks []*process) {
		ranks[victim].Process.Signal(syscall.SIGSTOP)
	}, []int{0, 1, 2})
	for _, text := range texts {
		if !strings.Contains(text, "rank 3") || !strings.Contains(text, "is lost") {
			t.Errorf("told %q", text)
		}
	}
}

// A cut wire says nothing to anybody: no end of file, no reset.
func TestACutLinkIsNoticed(t *testing.T) {
	if asRole(t, untilFailure) {
		return
	}
	texts := lost(t, func(hosts [2]netns.Host, _ []*process) {
		netns.Cut(t, hosts)
	}, []int{0, 1, 2, 3})
	for i, text := range texts {
		if !strings.Contains(text, "is lost") {
			t.Errorf("rank %d was told %q", i, text)
		}
	}
}

// A host that is gone says nothing either, though its processes have died.
func TestAHostsDeathIsNoticed(t *testing.T) {
	if asRole(t, untilFailure) {
		return
	}
	texts := lost(t, func(hosts [2]netns.Host, ranks []*process) {
		netns.Cut(t, hosts)
		ranks[2].Process.Kill()
		ranks[3].Process.Kill()
	}, []int{0, 1})
	for i, text := range texts {
		if !strings.Contains(text, "is lost") || !strings.Contains(text, "rank 2") && !strings.Contains(text, "rank 3") || text != texts[0] {
			t.Errorf("rank %d was told %q", i, text)
		}
	}
}

// A rank that computes for longer than the limit answers meanwhile, and so do the
// kernels of connections on which nothing moves.
func TestComputingIsNoSilence(t *testing.T) {
	l := newLauncher(t, 2)
	var worlds [2]*World
	each(2, func(r int) {
		c := l.config(r, 2, "tcp")
		c.Heartbeat = 3 * time.Second
		w, err := Join(context.Background(), c, 1, quiet())
		if err != nil {
			t.Error(err)
			return
		}
		worlds[r] = w
	})
	if t.Failed() {
		return
	}
	each(2, func(r int) {
		if _, err := add(worlds[r], "first", 1); err != nil {
			t.Error(err)
		}
		if r == 1 {
			time.Sleep(5 * time.Second)
		}
		if _, err := add(worlds[r], "second", 1); err != nil {
			t.Error(err)
		}
		worlds[r].Leave(limit)
	})
}

// What a heartbeat makes of what it hears.
func TestJudgement(t *testing.T) {
	var links []transport.Silence
	h := newHeartbeat(30 * time.Second)
	h.describe = func(r int) string { return fmt.Sprintf("rank %d", r) }
	h.reason = func(int) string { return "" }
	h.connections = func() []transport.Pulsed { return []transport.Pulsed{fakeLinks{&links}} }
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
	links = []transport.Silence{{Rank: 4, Addr: "a:1", For: 2 * time.Second}, {Rank: 5, Addr: "b:1", For: 29 * time.Second}}
	expect("a cut link", judge(0, 0), "rank 5 is lost")
}

type fakeLinks struct{ silent *[]transport.Silence }

func (f fakeLinks) Beat(time.Duration) []transport.Silence { return *f.silent }
func (f fakeLinks) Rest()                                  {}
