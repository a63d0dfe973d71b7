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

	"github.com/gorovod/gorovod/test/netns"
)

// untilFailure adds until it fails, prints why, and stays until it may go, so that no rank hears of another's end
// instead.
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

// lost starts two hosts of two ranks, does something to them while they work, and returns the error of each of the
// given ranks; the limit is three seconds.
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

// A cut wire tells nobody anything: no end of file, no reset.
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

// A host that is gone tells nothing either, though its processes have died.
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
		if !strings.Contains(text, "is lost") || !strings.Contains(text, "rank 2") && !strings.Contains(text,
			"rank 3") || text != texts[0] {
			t.Errorf("rank %d was told %q", i, text)
		}
	}
}

// A rank that computes for longer than the limit answers meanwhile, and so do the kernels for idle connections.
func TestComputingIsNoSilence(t *testing.T) {
	l := newLauncher(t, 2)
	var worlds [2]*World
	each(2, func(r int) {
		c := l.config(r, 2, "tcp")
		c.Heartbeat = 3 * time.Second
		w, err := join(context.Background(), c, 1, quiet())
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
