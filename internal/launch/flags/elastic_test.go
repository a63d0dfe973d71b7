package flags

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/discovery"
	"github.com/gorovod/gorovod/internal/launch/driver"
)

func TestElasticRules(t *testing.T) {
	f, err := Parse("horovodrun", strings.Fields("-np 4 --min-np 2 --max-np 8 --reset-limit 3 --elastic-timeout "+
		"7 --blacklist-cooldown-range 10 100 cmd -x"))
	if err != nil {
		t.Fatal(err)
	}
	c := f.Membership([]string{"GOROVOD_HEARTBEAT_SECONDS=5", "GOROVOD_CHECKPOINT_DIR=/d"})
	c.Random = nil
	want := membership.Config{NP: 4, Min: 2, Max: 8, ResetLimit: 3, Timeout: 7 * time.Second, Patience: 5 * time.Second,
		Cooldown: membership.Cooldown{Min: 10 * time.Second, Max: 100 * time.Second}, Fixed: true, Resumable: true}
	if !equalRules(c, want) || !slices.Equal(f.Command, []string{"cmd", "-x"}) {
		t.Errorf("got %+v %v, want %+v", c, f.Command, want)
	}
	t.Setenv("GOROVOD_ELASTIC_BLACKLIST", "host")
	t.Setenv("HOROVOD_ELASTIC_TIMEOUT", "9")
	if f, err = Parse("horovodrun", strings.Fields("-np 4 --host-discovery-script ./d cmd")); err != nil {
		t.Fatal(err)
	}
	c = f.Membership(nil)
	c.Random = nil
	want = membership.Config{NP: 4, Min: 4, ResetLimit: -1, Timeout: 9 * time.Second, Patience: 30 * time.Second,
		WholeHosts: true}
	if !equalRules(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	t.Setenv("GOROVOD_ELASTIC_BLACKLIST", "rack")
	if _, err = Parse("horovodrun", strings.Fields("-np 4 --min-np 1 cmd")); err == nil ||
		!strings.Contains(err.Error(), "rack") {
		t.Errorf("got %v", err)
	}
}

func equalRules(a, b membership.Config) bool {
	return a.NP == b.NP && a.Min == b.Min && a.Max == b.Max && a.ResetLimit == b.ResetLimit && a.Timeout == b.Timeout &&
		a.Patience == b.Patience &&
		a.Cooldown == b.Cooldown && a.Fixed == b.Fixed && a.Resumable == b.Resumable && a.WholeHosts == b.WholeHosts
}

func TestFirstDiscovery(t *testing.T) {
	for options, want := range map[string]driver.Limit{
		"":                                      {Limit: discovery.Limit, Option: "--start-timeout"},
		"--start-timeout 3":                     {Limit: 3 * time.Second, Option: "--start-timeout"},
		"--start-timeout 100":                   {Limit: 100 * time.Second, Option: "--start-timeout"},
		"--elastic-timeout 100":                 {Limit: discovery.Limit, Option: "--start-timeout"},
		"--elastic-timeout 5":                   {Limit: 5 * time.Second, Option: "--elastic-timeout"},
		"--elastic-timeout 5 --start-timeout 3": {Limit: 3 * time.Second, Option: "--start-timeout"},
		"--elastic-timeout 5 --start-timeout 9": {Limit: 5 * time.Second, Option: "--elastic-timeout"},
	} {
		f, err := Parse("horovodrun", strings.Fields("-np 1 --host-discovery-script ./d "+options+" cmd"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.FirstDiscovery(); got != want {
			t.Errorf("%s: got %v, want %v", options, got, want)
		}
	}
}
