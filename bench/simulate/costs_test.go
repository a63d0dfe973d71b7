package main

import (
	"path/filepath"
	"testing"
)

// The host that sends most sends at most 2(H-1)/H times a large tensor, and gets as much: what any allreduce needs that
// does not favour a host. So the data of a large tensor costs a host the same, however many hosts there are.
func TestLargeAllreduceCostsAHostTwiceTheTensor(t *testing.T) {
	const bytes = 1 << 20
	for _, s := range []shape{{hosts: 2, perHost: 2}, {hosts: 8, perHost: 2}, {hosts: 16, perHost: 1},
		{hosts: 32, perHost: 2}} {
		got, err := simulateLarge(s, bytes)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %+v", s, got)
		most := 2 * bytes * (s.hosts - 1) / s.hosts
		if got.most.out > most || got.most.in > most {
			t.Errorf("%+v: a host sends %d bytes and gets %d, at most %d each were expected", s, got.most.out,
				got.most.in, most)
		}
		if least := bytes; got.most.out < least || got.most.in < least {
			t.Errorf("%+v: a host sends %d bytes and gets %d: not all is counted", s, got.most.out, got.most.in)
		}
	}
}

// The busiest host of a small allreduce has messages to a few others, not to all: those of the tree of leaders, and
// log2(H) for each of its ranks.
func TestSmallAllreduceNeedsFewMessagesOfAHost(t *testing.T) {
	for hosts, rounds := range map[int]int{2: 1, 8: 3, 64: 6} {
		s := shape{hosts: hosts, perHost: 2}
		got, err := simulateSmall(s, smallBytes)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %+v", s, got)
		agreement := 2 * (hosts - 1) // a frame up and one down each link of the tree
		if most := agreement + hosts*s.perHost*rounds; got.messages > most || got.messages <= agreement {
			t.Errorf("%d hosts: %d messages, %d for the agreement and at most %d in all were expected", hosts,
				got.messages, agreement, most)
		}
		const links = 9 // of a leader: to its parent and to 8 children
		if most := links + s.perHost*rounds; got.most.sent > most || got.most.received > most {
			t.Errorf("%d hosts: a host sends %d messages and gets %d, at most %d were expected", hosts, got.most.sent,
				got.most.received, most)
		}
	}
}

// With data ahead an allreduce needs no message besides those of the agreement: a frame up and one down each link. The
// root gets each host's operand once, and sends the result to its 8 children at most. Every other host sends the
// operands of the hosts below it. So the root's link carries the bytes of all hosts, and the bound on an operand
// shrinks with the hosts.
func TestDataAheadCostsTheRootAnOperandOfEachHost(t *testing.T) {
	for _, hosts := range []int{2, 8, 64, 512} {
		s := shape{hosts: hosts, perHost: 1}
		if hosts < 64 {
			s.perHost = 3
		}
		bytes, got, err := simulateAhead(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v, %d bytes: %+v", s, bytes, got)
		if links := hosts - 1; got.messages != 2*links {
			t.Errorf("%d hosts: %d messages over %d links", hosts, got.messages, links)
		}
		const children, head = 8, 32 // head is more than what describes an operand or a result
		if most := min(hosts-1, children)*(bytes+head) + hosts*bytes; got.most.out > most {
			t.Errorf("%d hosts: a host sends %d bytes, at most %d were expected", hosts, got.most.out, most)
		}
		if most := hosts*bytes + children*head; got.most.in > most || got.most.in < (hosts-1)*bytes {
			t.Errorf("%d hosts: the root gets %d bytes, at most %d were expected", hosts, got.most.in, most)
		}
		if most := children + 1; got.most.sent > most || got.most.received > most {
			t.Errorf("%d hosts: a host sends %d messages and gets %d, at most %d were expected", hosts, got.most.sent,
				got.most.received, most)
		}
		if all := hosts * bytes; all > 4*earlyBytes {
			t.Errorf("%d hosts may send %d bytes to the root, %d were expected", hosts, all, 4*earlyBytes)
		}
	}
	if _, _, err := simulateAhead(shape{hosts: 8, perHost: 2}, earlyBytes); err == nil {
		t.Error("more data has travelled than may")
	}
}

// Each rank has one connection to the launcher. It reads what each other rank says of itself, so what the launcher
// sends grows with the square of the ranks; what a rank sends does not grow, and neither do its figures.
func TestLauncherCosts(t *testing.T) {
	small, err := simulateLauncher(shape{hosts: 2, perHost: 4, tensors: 3}, false)
	if err != nil {
		t.Fatal(err)
	}
	large, err := simulateLauncher(shape{hosts: 8, perHost: 4, tensors: 3}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("8 ranks %+v, 32 ranks %+v", small, large)
	if small.connections != 8 || large.connections != 32 {
		t.Errorf("%d and %d connections of 8 and 32 ranks", small.connections, large.connections)
	}
	// On a busy machine waiting ranks send more to say that they live. The slack is less than what another order costs.
	const slack = 3
	for what, figure := range map[string]func(c launcherCost) int{
		"start": func(c launcherCost) int { return c.start.in },
		"all":   func(c launcherCost) int { return c.whole.in },
		"news":  func(c launcherCost) int { return c.news.in },
	} {
		if a, b := figure(small), figure(large); float64(b) > slack*4*float64(a) || a == 0 || b < a {
			t.Errorf("%s: the launcher gets %d bytes of 8 ranks, %d of 32", what, a, b)
		}
	}
	if a, b := small.start.out, large.start.out; float64(b) > slack*16*float64(a) || b < a {
		t.Errorf("start: the launcher sends %d bytes to 8 ranks, %d to 32", a, b)
	}
	if perRank := large.news.in / 32; perRank > 1000 {
		t.Errorf("a rank's figures have %d bytes, and a rank may send 1,000 a second", perRank)
	}
}

func TestCurvesAreDrawn(t *testing.T) {
	var c curves
	if err := c.printSmall(64); err != nil {
		t.Fatal(err)
	}
	if err := c.printLarge(16); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"costs.svg", "costs.png"} {
		if err := c.draw(filepath.Join(t.TempDir(), name)); err != nil {
			t.Error(err)
		}
	}
	for x, i := costsPanel("", "").X, 0; i < len(x.Ticks); i++ {
		if at := x.Ticks[i].At; at < x.Low || at > x.High {
			t.Errorf("a tick at %v is outside of the axis", at)
		}
	}
	if c.draw(filepath.Join(t.TempDir(), "costs.gif")) == nil {
		t.Error("a GIF is drawn")
	}
}

func TestAmount(t *testing.T) {
	for bytes, want := range map[int]string{0: "0 B", 999: "999 B", 1000: "1 kB", 2093056: "2.09 MB", 999_600: "1 MB"} {
		if got := amount(bytes); got != want {
			t.Errorf("%d: %s, not %s", bytes, got, want)
		}
	}
}
