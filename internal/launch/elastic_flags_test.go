package launch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/driver"
)

func TestElasticRules(t *testing.T) {
	f, err := parseFlags("horovodrun", strings.Fields("-np 4 --min-np 2 --max-np 8 --reset-limit 3 --elastic-timeout "+
		"7 --blacklist-cooldown-range 10 100 cmd -x"))
	if err != nil {
		t.Fatal(err)
	}
	c := f.membership([]string{"GOROVOD_HEARTBEAT_SECONDS=5", "GOROVOD_CHECKPOINT_DIR=/d"})
	c.Random = nil
	want := membership.Config{NP: 4, Min: 2, Max: 8, ResetLimit: 3, Timeout: 7 * time.Second, Patience: 5 * time.Second,
		Cooldown: membership.Cooldown{Min: 10 * time.Second, Max: 100 * time.Second}, Fixed: true, Resumable: true}
	if !equalRules(c, want) || !slices.Equal(f.command, []string{"cmd", "-x"}) {
		t.Errorf("got %+v %v, want %+v", c, f.command, want)
	}
	t.Setenv("GOROVOD_ELASTIC_BLACKLIST", "host")
	t.Setenv("HOROVOD_ELASTIC_TIMEOUT", "9")
	if f, err = parseFlags("horovodrun", strings.Fields("-np 4 --host-discovery-script ./d cmd")); err != nil {
		t.Fatal(err)
	}
	c = f.membership(nil)
	c.Random = nil
	want = membership.Config{NP: 4, Min: 4, ResetLimit: -1, Timeout: 9 * time.Second, Patience: 30 * time.Second,
		WholeHosts: true}
	if !equalRules(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	t.Setenv("GOROVOD_ELASTIC_BLACKLIST", "rack")
	if _, err = parseFlags("horovodrun", strings.Fields("-np 4 --min-np 1 cmd")); err == nil ||
		!strings.Contains(err.Error(), "rack") {
		t.Errorf("got %v", err)
	}
}

func equalRules(a, b membership.Config) bool {
	return a.NP == b.NP && a.Min == b.Min && a.Max == b.Max && a.ResetLimit == b.ResetLimit && a.Timeout == b.Timeout &&
		a.Patience == b.Patience &&
		a.Cooldown == b.Cooldown && a.Fixed == b.Fixed && a.Resumable == b.Resumable && a.WholeHosts == b.WholeHosts
}

// A line that makes no sense hides no other line. The first answer must be whole, and so must one that is nothing but
// an error message. A host about which only a bad line speaks stays as it was.
func TestDiscoveryWithBadLines(t *testing.T) {
	var said []string
	d := &discovery{script: "s", slots: 1, say: func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}}
	for i, c := range []struct {
		answer, want string
		says         string // empty: nothing
		fails        bool
	}{
		{"a:2\nb:x\n", "", "", true}, // the first
		{"a:2\nb:1\n", "[{a 2} {b 1}]", "", false},
		{"a:0\nb:1\n", "[{b 1}]", "", false},
		{"a:3\nb:1\n", "[{a 3} {b 1}]", "", false},
		{"a:0\nb:two\nc:4\n", "[{c 4} {b 1}]",
			`discover hosts: s printed "b:two": a line must look like host or host:slots; its other lines count`, false},
		{"a:0\nb:two\nc:4\n", "[{c 4} {b 1}]", "", false}, // said already
		{"c:4\noops, no network\n", "[{c 4}]",
			`discover hosts: s printed "oops, no network": a line must look like host or host:slots; ` +
				`its other lines count`, false},
		{"Traceback (most recent call last):\n  File x, line 1\n", "", "", true},
		{"c:0\n", "[]", "", false},
	} {
		said = nil
		hosts, err := d.read(c.answer)
		if (err != nil) != c.fails || err == nil && fmt.Sprint(hosts) != c.want || strings.Join(said, "|") != c.says {
			t.Errorf("%d: %q: %v, %v, said %q", i, c.answer, hosts, err, said)
		}
	}
}

func TestDiscoveryScript(t *testing.T) {
	for text, want := range map[string][]membership.Host{
		"":                        nil,
		"a:2\nb\n\n  c:1  \n":     {{Name: "a", Slots: 2}, {Name: "b", Slots: 3}, {Name: "c", Slots: 1}},
		"a:2\nb:1\na:4\n":         {{Name: "a", Slots: 4}, {Name: "b", Slots: 1}},
		"a:2\nb:0\nc:1\n":         {{Name: "a", Slots: 2}, {Name: "c", Slots: 1}},
		"a:2\nb:1\na:0\n":         {{Name: "b", Slots: 1}},
		"a:0\nb:1\na:2\n":         {{Name: "a", Slots: 2}, {Name: "b", Slots: 1}},
		"a:0\n":                   nil,
		"[fd00::1]:2\n10.0.0.1\n": {{Name: "fd00::1", Slots: 2}, {Name: "10.0.0.1", Slots: 3}},
	} {
		got, _, err := (&discovery{script: "s", slots: 3}).parse(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"a:x", "a:-1", "-oProxyCommand=x:1", "a b", "a:1:2"} {
		if got, _, err := (&discovery{script: "s", slots: 1}).parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	ctx := context.Background()
	script := filepath.Join(t.TempDir(), "discover")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $1:2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := (&discovery{script: script + " a", slots: 1}).hosts(ctx); err != nil ||
		!slices.Equal(got, []membership.Host{{Name: "a", Slots: 2}}) {
		t.Errorf("got %v %v", got, err)
	}
	_, err := (&discovery{script: "echo a:1; echo no network >&2; exit 3", slots: 1}).hosts(ctx)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no network") {
		t.Errorf("got %v", err)
	}
	t.Chdir(filepath.Dir(script))
	for command, says := range map[string]string{
		"discover a":      "write --host-discovery-script './discover a'",
		"discover":        "write --host-discovery-script ./discover",
		"no-such-script":  "not found",
		"exit 127":        "exit status 127",
		"./plain":         "make it executable: chmod +x ./plain",
		"./discover; no2": "not found",
	} {
		os.WriteFile("plain", nil, 0o600)
		_, err := (&discovery{script: command, slots: 1}).hosts(ctx)
		advised := err != nil && (strings.Contains(err.Error(), "--host-discovery-script") ||
			strings.Contains(err.Error(), "chmod"))
		if err == nil || !strings.Contains(err.Error(), says) || advised != (strings.HasPrefix(says, "write") ||
			strings.HasPrefix(says, "make")) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if _, err := (&discovery{script: "yes a:1", slots: 1}).hosts(ctx); err == nil ||
		err.Error() != "yes a:1: it has printed more "+
			"than 1024 KiB" {
		t.Errorf("endless output: %v", err)
	}
	if _, err := (&discovery{script: "yes no network | head -c 100000 >&2; exit 3", slots: 1}).hosts(ctx); err == nil ||
		len(err.Error()) > 6000 || !strings.Contains(err.Error(), "no network") {
		t.Errorf("it says much: %.200v", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("it is slow"))
	defer cancel()
	if _, err := (&discovery{script: "sleep 60", slots: 1}).hosts(ctx); err == nil ||
		err.Error() != "sleep 60: it is slow" {
		t.Errorf("a script that hangs: %v", err)
	}
}

// A process that a discovery script leaves behind, and that holds the script's output open, changes no result, and is
// ended.
func TestDiscoveryLeavesNothingBehind(t *testing.T) {
	left := filepath.Join(t.TempDir(), "pid")
	hosts, err := (&discovery{script: "sleep 100 & echo $! >" + left + "; echo a:2", slots: 1}).hosts(t.Context())
	if err != nil || !slices.Equal(hosts, []membership.Host{{Name: "a", Slots: 2}}) {
		t.Errorf("got %v, %v", hosts, err)
	}
	text, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is left: %s", stat)
		}
	}
}

func TestFirstDiscovery(t *testing.T) {
	for options, want := range map[string]driver.Limit{
		"":                                      {Limit: scriptLimit, Option: "--start-timeout"},
		"--start-timeout 3":                     {Limit: 3 * time.Second, Option: "--start-timeout"},
		"--start-timeout 100":                   {Limit: 100 * time.Second, Option: "--start-timeout"},
		"--elastic-timeout 100":                 {Limit: scriptLimit, Option: "--start-timeout"},
		"--elastic-timeout 5":                   {Limit: 5 * time.Second, Option: "--elastic-timeout"},
		"--elastic-timeout 5 --start-timeout 3": {Limit: 3 * time.Second, Option: "--start-timeout"},
		"--elastic-timeout 5 --start-timeout 9": {Limit: 5 * time.Second, Option: "--elastic-timeout"},
	} {
		f, err := parseFlags("horovodrun", strings.Fields("-np 1 --host-discovery-script ./d "+options+" cmd"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.firstDiscovery(); got != want {
			t.Errorf("%s: got %v, want %v", options, got, want)
		}
	}
}

// A worker has the variables of Horovod's launcher, as foreseen at the worker's start, and none that this launcher has
// inherited.
func TestWorkersEnvironment(t *testing.T) {
	e := &elasticJob{key: []byte{0xab, 0xcd}}
	place := membership.Place{Worker: 7, Host: "b", Rank: 3, Size: 5, LocalRank: 1, LocalSize: 2, CrossRank: 2,
		CrossSize: 4}
	got := e.environ([]string{"HOME=/h", "HOROVOD_RANK=0", "HOROVOD_GLOO_RENDEZVOUS_ADDR=9.9.9.9",
		"GOROVOD_RENDEZVOUS_ADDRS=9.9.9.9:1", "GOROVOD_ELASTIC_WORKER=1"}, membership.Start{Worker: 7, Host: "b",
		Slot: 1, Place: place},
		[]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")},
		[]string{"lo"})
	want := []string{"HOME=/h", "HOROVOD_ELASTIC=1", "HOROVOD_HOSTNAME=b", "HOROVOD_RANK=3", "HOROVOD_SIZE=5",
		"HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=2", "HOROVOD_CROSS_RANK=2", "HOROVOD_CROSS_SIZE=4",
		"HOROVOD_CONTROLLER=gloo", "HOROVOD_CPU_OPERATIONS=gloo", "HOROVOD_GLOO_IFACE=lo", "NCCL_SOCKET_IFNAME=lo",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT=80",
		"GOROVOD_ELASTIC_DRIVER=10.0.0.1:80,10.0.0.2:80", "GOROVOD_ELASTIC_WORKER=7",
		"HOROVOD_SECRET_KEY=abcd", "PYTHONUNBUFFERED=1"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
