package job

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

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
