package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestBytesByLink checks the sums by link and interface, also over several answers and worlds.
func TestBytesByLink(t *testing.T) {
	j := NewJob()
	tell := func(rank int, generation uint64, nic string, shm, tcp uint64) {
		f := &feed.Figures{NIC: feed.NIC{Name: nic}, Works: []feed.Work{{Op: operation.Allreduce, Class: 2, Bus: tcp}},
			Traffic: []feed.Traffic{{Way: feed.ByMemory, Class: 1, Bytes: shm}, {Way: feed.ByTCP, Class: 1, Bytes: 1},
				{Way: feed.ByTCP, Class: 2, Bytes: tcp}, {Way: feed.ByNCCL, Class: 2, Bytes: 7}}}
		j.Take(rank, generation, "", f.Append(nil))
	}
	j.Form(3, 0, all(3))
	for rank, nic := range []string{"eth0", "ib0", ""} {
		tell(rank, 1, nic, 10, 100)
		tell(rank, 1, nic, 15, 1000)
		tell(rank, 1, nic, 15, 1000)
	}
	j.Form(1, 2<<20, all(1))
	tell(0, 2<<20+1, "eth0", 3, 4)
	page := shown(t, j)
	has(t, page, `wire_bytes_total{link="shm"} 48`, `wire_bytes_total{link="tcp",nic="eth0"} 1006`,
		`wire_bytes_total{link="tcp",nic="ib0"} 1001`, `wire_bytes_total{link="tcp"} 1001`,
		`wire_bytes_total{link="nccl"} 28`, `bus_bytes_total{op="allreduce",size_class="1MiB"} 3004`)
	if strings.Contains(page, `link="mpi"`) {
		t.Errorf("bytes over MPI: %s", page)
	}
}

// TestInterfacesHaveBoundedLabels checks a job whose hosts all have other names for their interfaces.
func TestInterfacesHaveBoundedLabels(t *testing.T) {
	const ranks = 100
	j := NewJob()
	j.Form(ranks, 0, all(ranks))
	for rank := range ranks {
		f := &feed.Figures{NIC: feed.NIC{Name: fmt.Sprint("eth", rank)},
			Traffic: []feed.Traffic{{Way: feed.ByTCP, Bytes: 1}}}
		j.Take(rank, 1, "", f.Append(nil))
	}
	page := shown(t, j)
	has(t, page, fmt.Sprintf(`wire_bytes_total{link="tcp",nic="other"} %d`, ranks-maxNICs))
	if n := strings.Count(page, "\nhorovod_wire_bytes_total{"); n != maxNICs+1 {
		t.Errorf("%d interfaces have labels", n)
	}
}
