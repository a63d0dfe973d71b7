package discovery

import (
	"testing"

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
		if hosts, _, err := (&Script{Command: "script", Slots: 2}).Parse(text); err == nil {
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
