package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/discovery"
	"github.com/gorovod/gorovod/internal/launch/placement"
)

// Lists of hosts, from an option, a file or a script, are read or refused. If they are read, all ranks have places.
func FuzzHosts(f *testing.F) {
	f.Add("a:2,b:4")
	f.Add("[fe80::1%eth0]:1,localhost:1048576,localhost:1048576")
	f.Add("a slots=2 # two\n\n[::1] slots=1\n::1 slots=3")
	f.Add("a\nb:3\nb:2\r\n")
	f.Add("-oProxyCommand=x:1,a:99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		lists := map[string][]placement.Host{}
		if hosts, err := placement.ParseHosts(text); err == nil {
			lists["-H"] = hosts
		}
		if hosts, err := placement.ParseHostfile("file", text); err == nil {
			lists["hostfile"] = hosts
		}
		if hosts, _, err := (&discovery.Script{Command: "script", Slots: 2}).Parse(text); err == nil {
			for _, h := range hosts {
				lists["script"] = append(lists["script"], placement.Host{Name: h.Name, Slots: h.Slots})
			}
		}
		for from, hosts := range lists {
			total := 0
			for _, h := range hosts {
				if h.Name == "" || h.Name[0] == '-' || h.Slots < 1 || h.Slots > placement.MaxSlots {
					t.Errorf("%s %q: %+v", from, text, h)
				}
				total = min(total+h.Slots, 100)
			}
			if len(hosts) == 0 {
				if from != "script" {
					t.Errorf("%s %q: no hosts", from, text)
				}
				continue
			}
			slots, err := placement.Assign(hosts, total)
			if err != nil || len(slots) != total {
				t.Errorf("%s %q: %d places for %d ranks, %v", from, text, len(slots), total, err)
			}
			for r, s := range slots {
				if s.Rank != r || s.LocalRank >= s.LocalSize || s.CrossRank >= s.CrossSize {
					t.Errorf("%s %q: %+v", from, text, s)
				}
			}
		}
	})
}

// A file of settings is read or refused, whatever bytes it has.
func FuzzConfigFile(f *testing.F) {
	f.Add("controller: gloo\nparams:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 1.5\ntimeline:\n  filename: t\n")
	f.Add("params: &a\n  cache_capacity: 99999999999999999999\n")
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n")
	f.Add("logging:\n  level: info\n  with_timestamp: yes\nstall_check: {enabled: false, warning_time_seconds: -1}\n")
	f.Add("--- 1\n--- {}\n\t")
	path := filepath.Join(f.TempDir(), "settings.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := parseFlags("horovodrun", []string{"-np", "2", "--config-file", path, "true"}); err == nil {
			f.tune(f.environ(nil))
		}
	})
}

// Command lines are understood or refused with words. So are those that the launcher builds for agents and other
// launchers.
func FuzzFlags(f *testing.F) {
	for _, line := range []string{"-np 2 python train.py", "-H a:1,b:2 --verbose -- x",
		"--min-np 1 --max-np 3 --host-discovery-script ./d --slots-per-host 2 x",
		"-np -1", "--timeline-filename", "-p 22 -i k --start-timeout 1e9 x", "--config-file /dev/null x", "-np=2 -cb",
		"--blacklist-cooldown-range 1 2 -np 1 x", "-np \x00"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "config-file") && !strings.Contains(line, "/dev/null") {
			return // the option names a file to read
		}
		o, err := parseFlags("horovodrun", strings.Fields(line))
		switch {
		case err != nil && strings.TrimSpace(err.Error()) == "":
			t.Errorf("%q is refused without a word", line)
		case err == nil && o == nil:
			t.Errorf("%q is neither understood nor refused", line)
		}
	})
}
