package placement

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		hosts string
		np    int
		want  string // host local/size cross/size, by rank
	}{
		{"localhost:2", 2, "localhost 0/2 0/1, localhost 1/2 0/1"},
		{"localhost:4", 2, "localhost 0/2 0/1, localhost 1/2 0/1"},
		{"a:2,b:1", 3, "a 0/2 0/2, a 1/2 0/1, b 0/1 1/2"},
		{"a:1,b:2", 3, "a 0/1 0/2, b 0/2 1/2, b 1/2 0/1"},
		{"a:1,b:1,a:1", 3, "a 0/2 0/2, a 1/2 0/1, b 0/1 1/2"},
		{"a:2,b:2", 3, "a 0/2 0/2, a 1/2 0/1, b 0/1 1/2"},
		{"a:2,b:2", 2, "a 0/2 0/1, a 1/2 0/1"},
	} {
		hosts, err := ParseHosts(c.hosts)
		if err != nil {
			t.Fatal(err)
		}
		slots, err := Assign(hosts, c.np)
		if err != nil {
			t.Errorf("%s: %v", c.hosts, err)
		}
		var got []string
		for r, s := range slots {
			if s.Rank != r || s.Size != c.np {
				t.Errorf("%s: rank %d of %d at %d", c.hosts, s.Rank, s.Size, r)
			}
			got = append(got, fmt.Sprintf("%s %d/%d %d/%d", s.Host, s.LocalRank, s.LocalSize, s.CrossRank, s.CrossSize))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s -np %d: %s, want %s", c.hosts, c.np, got, c.want)
		}
	}
	if _, err := Assign([]Host{{"a", 1}, {"::1", 1}}, 3); err == nil || !strings.Contains(err.Error(),
		"only 2 slots (a:1, [::1]:1): name more hosts") {
		t.Errorf("too few slots: %v", err)
	}
}

func TestMalformedHosts(t *testing.T) {
	for _, text := range []string{"", "a", "a:", ":2", "a:2,", "a:2,,b:2", "a:b", "a:-1", "::1:2", "a b:2", "a:2 ",
		"a:0", "a:0,b:0", "a:99999999999999999999"} {
		if hosts, err := ParseHosts(text); err == nil {
			t.Errorf("%q: accepted as %v", text, hosts)
		}
	}
	_, err := ParseHosts("localhost")
	if err == nil || !strings.HasPrefix(err.Error(), "Invalid host input") {
		t.Errorf("upstream's words are missing: %v", err)
	}
}

// A host with 0 slots is drained: it is left out, whoever lists the hosts.
func TestHostsWithoutSlots(t *testing.T) {
	hosts, err := ParseHosts("a:0,b:2,c:0,d:1,b:0")
	if got := fmt.Sprint(hosts); err != nil || got != "[{b 2} {d 1}]" {
		t.Errorf("-H: %s %v", got, err)
	}
	hosts, err = ParseHostfile("f", "a slots=0\nb slots=2\nc:0\n[::1]:0\nd slots=1\n")
	if got := fmt.Sprint(hosts); err != nil || got != "[{b 2} {d 1}]" {
		t.Errorf("hostfile: %s %v", got, err)
	}
}

func TestHostfile(t *testing.T) {
	hosts, err := ParseHostfile("f", "\ufeffa slots=2\n\n# comment\nb slots=3 # too\nc:4\n[::1]:5\n")
	if got := fmt.Sprint(hosts); err != nil || got != "[{a 2} {b 3} {c 4} {::1 5}]" {
		t.Errorf("%s %v", got, err)
	}
	for text, says := range map[string]string{
		"":                      "names no hosts",
		"a slots=2\nb":          "f:2:",
		"a slot=2":              "f:1:",
		"a slots=x":             "f:1:",
		"a slots=0":             "f names no host with a slot",
		"a slots=-1":            "f:1:",
		"a slots=2 max_slots=3": "f:1:",
	} {
		if _, err := ParseHostfile("f", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLocalNames(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "127.0.0.5", own, strings.ToUpper(own)} {
		if !IsLocal(name) {
			t.Errorf("%s is this host", name)
		}
	}
	for _, name := range []string{"192.0.2.1", "no-such-host.invalid"} {
		if IsLocal(name) {
			t.Errorf("%s is not this host", name)
		}
	}
	found := Locals([]Host{{"localhost", 1}, {"192.0.2.1", 1}, {"::1", 2}})
	if !found["localhost"] || found["192.0.2.1"] || !found["::1"] {
		t.Errorf("got %v", found)
	}
}

func TestOwnNames(t *testing.T) {
	s := HostNames{names: []string{"localhost", "node0.example", "node0"}}
	for name, want := range map[string]bool{"localhost": true, "NODE0": true, "node0.example": true, "node1": false,
		"node": false, "": false} {
		if s.Has(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}
