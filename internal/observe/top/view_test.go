package top

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/gorovod/gorovod/internal/observe/overview"
)

var at = time.Unix(1e9, 0)

// filled is the model of a job with the given number of ranks. The others wait for rank 3.
func filled(size int) *model {
	now := &overview.Snapshot{Time: at.UnixMilli(), Sentence: "All wait for rank 3 on b, in `x`, for 2.1 s.",
		Tone: overview.Stuck, Size: size, Hosts: []string{"a", "b"}, Collectives: 12.345, Bytes: 2e9, Waiting: 0.5,
		Where: &overview.Where{Rank: 3, Text: "its program is in load (x/data.py:7)."}, Step: 0.25, Samples: 512,
		Open: []overview.Open{{Name: "layer4.conv2.weight", Op: "ALLREDUCE", Age: 2.1, State: "waits",
			Waits: "0-2", Missing: "3"}},
		History: []overview.Event{{Time: at.UnixMilli(), Text: "all ranks have joined"}},
		Tables: []overview.Table{{Name: "us\x1bers", Rows: 1200, Bytes: 3e6, Pull: 0.0012, Push: 0.002, Hottest: 0.25},
			{Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}},
		Links: []overview.Link{{Link: "shm", Class: "32MiB", Rate: 1e9, Host: "a", HostRate: 2e9, Limit: 4e9},
			{Link: "shm", Class: "1MiB", Rate: 9e9, Host: "a", HostRate: 9e9},
			{Link: "tcp", NIC: "eth\x1b0", Class: "32MiB", Rate: 3e8, Host: "b", HostRate: 6e8}}}
	for i := range size {
		r := overview.Rank{Host: i % 2, Waiting: uint8(90 - i%50), Memory: uint64(i+1) << 20, Cores: 1, Pending: 1,
			Whom: 3}
		if i == 3 {
			r.Late, r.Waiting, r.Whom = 88, 0, -1
		}
		now.Ranks = append(now.Ranks, r)
	}
	m := &model{name: "job 4711: train.py"}
	m.take(now, at)
	return m
}

func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

func TestTheScreenShowsTheJob(t *testing.T) {
	got := text(filled(4).view(100, 20, at))
	for _, want := range []string{"job 4711: train.py  4 ranks on 2 hosts\n",
		"All wait for rank 3 on b, in `x`, for 2.1 s.\n",
		"for 2.1 s.\nRank 3: its program is in load (x/data.py:7).\n", "step 250 ms  4 steps/s  512 samples/s  " +
			"12.3 collectives/s  2 GB/s  waiting 50 %  communicating 0 %\n" +
			"shm 1 GB/s a rank, up to 32MiB (a host 2 GB/s, 50 % of its limit)  tcp eth\\x1b0 300 MB/s a rank, up",
		"*WAITED-FOR",
		"    3    0 %      -        88 %   1.00", "    0   90 %      3         0 %   1.00", "OPERATIONS IN FLIGHT\n",
		"  us\\x1bers: 1200 rows, 3 MB, pull 1.2 ms, push 2 ms, 25 % of lookups for 16 keys\n", "  and 2 more\n",
		"    2.1 s  ALLREDUCE layer4.conv2.weight: submitted by 0-2, missing 3\n", "all ranks have joined\n",
		"q quit  s sort: waited for"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if first := strings.Index(got, "    3    0 %"); first > strings.Index(got, "    0   90 %") {
		t.Errorf("the rank that the others wait for is not the first:\n%s", got)
	}
}

// TestScreensOfAllSizes checks that nothing is wider or higher than the screen, and that ranks are on it if they fit.
func TestScreensOfAllSizes(t *testing.T) {
	for _, m := range []*model{filled(1), filled(4), filled(512), {name: "nothing yet"}} {
		for _, help := range []bool{false, true} {
			m.help = help
			for width := range 130 {
				for height := range 40 {
					lines := m.view(width, height, at)
					if len(lines) > height {
						t.Fatalf("%d lines on a screen of %d", len(lines), height)
					}
					for _, l := range lines {
						if w := uniseg.StringWidth(l.String()); w > width {
							t.Fatalf("%d columns on a screen of %d: %q", w, width, l)
						}
					}
					if got := text(lines); m.now != nil && !help && width >= 20 && height >= 14 &&
						!strings.Contains(got, "RANK  WAITS") {
						t.Fatalf("no ranks on a screen of %d columns and %d lines:\n%s", width, height, got)
					}
				}
			}
		}
	}
}

func TestSortingAndScrolling(t *testing.T) {
	m := filled(512)
	m.view(100, 30, at)
	if m.fits < 10 || m.fits > 28 {
		t.Errorf("%d ranks fit", m.fits)
	}
	press := func(letters string) {
		for _, l := range letters {
			m.press(otherKey, l)
		}
	}
	for _, c := range []struct {
		letters string
		first   int
	}{{"", 3}, {"w", 0}, {"r", 3}, {"n", 0}, {"r", 511}, {"m", 511}, {"S", 0}, {"s", 511}, {"l", 3}, {"z", 3},
		{"?x", 3}} {
		press(c.letters)
		if got := m.sorted()[0]; got != c.first {
			t.Errorf("after %q rank %d is the first, not %d", c.letters, got, c.first)
		}
	}
	press("n")
	m.press(endKey, 0)
	if m.offset != 512-m.fits || !strings.Contains(text(m.view(100, 30, at)), "  511 ") {
		t.Errorf("the end is at %d of %d", m.offset, m.fits)
	}
	m.press(downKey, 0)
	m.press(pageUpKey, 0)
	if m.offset != 512-2*m.fits {
		t.Errorf("a page before the end is %d", m.offset)
	}
	m.press(homeKey, 0)
	m.press(upKey, 0)
	press("jj ")
	if m.offset != 2+m.fits {
		t.Errorf("two lines and a page lead to %d", m.offset)
	}
	small := filled(2).now // the job is formed anew, with fewer ranks
	m.take(small, at)
	if got := text(m.view(100, 30, at)); m.offset != 0 || !strings.Contains(got, "    0 ") {
		t.Errorf("at %d:\n%s", m.offset, got)
	}
	if press("q"); !m.leaving {
		t.Error("q does not quit")
	}
}

// TestNamesCannotChangeTheScreen shows names of tensors and hosts that have sequences for terminals, or that are wide.
func TestNamesCannotChangeTheScreen(t *testing.T) {
	const evil = "a\x1b[2J\x1b]0;x\a\nb\u202ec\u009b"
	m := filled(2)
	m.now.Sentence, m.now.Hosts, m.now.Open[0].Name, m.now.History[0].Text = evil, []string{evil, "漢字漢字"}, evil, evil
	m.now.Open[0].Op, m.now.Open[0].Waits, m.now.Open[0].Missing = evil, evil, evil
	for _, got := range []string{text(m.view(90, 20, at)), text(m.once(at))} {
		if i := strings.IndexAny(got, "\x1b\a\u202e\u009b"); i >= 0 {
			t.Errorf("%q", got[max(0, i-20):i+10])
		}
		if n := strings.Count(got, "\nb"); n > 0 {
			t.Errorf("%d forged lines in\n%s", n, got)
		}
	}
}

func TestASilentLauncherIsNamed(t *testing.T) {
	m := filled(4)
	m.now.Ranks[2].Silent = 9
	m.now.Ranks[1] = overview.Rank{Host: -1, Silent: -1}
	got := text(m.view(100, 24, at.Add(time.Minute)))
	for _, want := range []string{"No news for 60 s: the launcher does not answer.", "a, silent for 9 s",
		"    1      -      -           -", "has told nothing yet"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text        string
		width, most int
		want        string
	}{
		{"one two three", 7, 9, "one two|three"}, {"one two three", 6, 9, "one|two|three"}, {"", 6, 9, ""},
		{"one two three four", 6, 2, "one|two t…"}, {"abcdefghij kl", 5, 9, "abcd|efgh|ij kl"},
		{"漢字漢字 x", 5, 9, "漢字|漢字|x"}, {"ab", 0, 3, ""},
	} {
		if got := strings.Join(wrap(c.text, c.width, c.most), "|"); got != c.want {
			t.Errorf("%q in %d columns: %q, not %q", c.text, c.width, got, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	parts := []string{"step 201 ms", "4.98 steps/s", "waiting 45 %", "communicating 0 %"}
	for width, want := range map[int]string{
		80: "step 201 ms  4.98 steps/s  waiting 45 %  communicating 0 %",
		58: "step 201 ms  4.98 steps/s  waiting 45 %  communicating 0 %",
		57: "step 201 ms  4.98 steps/s  waiting 45 %|communicating 0 %",
		20: "step 201 ms|4.98 steps/s|waiting 45 %  communicating 0 %", // which is cut
	} {
		if got := strings.Join(rows(parts, width, 3), "|"); got != want {
			t.Errorf("in %d columns: %q, not %q", width, got, want)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	env := func(string) string { return "" }
	for job, want := range map[string]string{"abc": "is no job", "-3": "is no job",
		"99999999": "there is no job 99999999",
		"ftp://x/": "no address of a dashboard", "http:///x": "no address of a dashboard", "\x1b:1": "no address"} {
		_, err := find(job, env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %v", job, err)
		}
	}
	s, err := find("127.0.0.1:9500", env)
	if err != nil || s.url != "http://127.0.0.1:9500/" {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = find("https://user@host/x?y#z", func(name string) string {
		return map[string]string{"GOROVOD_METRICS_TOKEN": "correct-horse-battery"}[name]
	})
	if err != nil || s.url != "https://host/" || s.token != "correct-horse-battery" {
		t.Errorf("%+v, %v", s, err)
	}
	if code, err := Main("gorovod top", nil, os.Stdin); code != 2 || err == nil ||
		!strings.Contains(fmt.Sprint(err), "--once") {
		t.Errorf("%d, %v", code, err)
	}
}
