package discovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// A line that makes no sense hides no other line. The first answer must be whole, and so must one that is nothing but
// an error message. A host about which only a bad line speaks stays as it was.
func TestDiscoveryWithBadLines(t *testing.T) {
	var said []string
	d := &Script{Command: "s", Slots: 1, Say: func(format string, args ...any) {
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
		got, _, err := (&Script{Command: "s", Slots: 3}).Parse(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"a:x", "a:-1", "-oProxyCommand=x:1", "a b", "a:1:2"} {
		if got, _, err := (&Script{Command: "s", Slots: 1}).Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	ctx := context.Background()
	script := filepath.Join(t.TempDir(), "discover")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $1:2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := (&Script{Command: script + " a", Slots: 1}).Hosts(ctx); err != nil ||
		!slices.Equal(got, []membership.Host{{Name: "a", Slots: 2}}) {
		t.Errorf("got %v %v", got, err)
	}
	_, err := (&Script{Command: "echo a:1; echo no network >&2; exit 3", Slots: 1}).Hosts(ctx)
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
		_, err := (&Script{Command: command, Slots: 1}).Hosts(ctx)
		advised := err != nil && (strings.Contains(err.Error(), "--host-discovery-script") ||
			strings.Contains(err.Error(), "chmod"))
		if err == nil || !strings.Contains(err.Error(), says) || advised != (strings.HasPrefix(says, "write") ||
			strings.HasPrefix(says, "make")) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if _, err := (&Script{Command: "yes a:1", Slots: 1}).Hosts(ctx); err == nil ||
		err.Error() != "yes a:1: it has printed more "+
			"than 1024 KiB" {
		t.Errorf("endless output: %v", err)
	}
	if _, err := (&Script{Command: "yes no network | head -c 100000 >&2; exit 3", Slots: 1}).Hosts(ctx); err == nil ||
		len(err.Error()) > 6000 || !strings.Contains(err.Error(), "no network") {
		t.Errorf("it says much: %.200v", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("it is slow"))
	defer cancel()
	if _, err := (&Script{Command: "sleep 60", Slots: 1}).Hosts(ctx); err == nil ||
		err.Error() != "sleep 60: it is slow" {
		t.Errorf("a script that hangs: %v", err)
	}
}

// A process that a discovery script leaves behind, and that holds the script's output open, changes no result, and is
// ended.
func TestDiscoveryLeavesNothingBehind(t *testing.T) {
	left := filepath.Join(t.TempDir(), "pid")
	hosts, err := (&Script{Command: "sleep 100 & echo $! >" + left + "; echo a:2", Slots: 1}).Hosts(t.Context())
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
