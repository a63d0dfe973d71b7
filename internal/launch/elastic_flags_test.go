package launch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/discovery"
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
