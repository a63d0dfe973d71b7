package overview

import (
	"reflect"
	"testing"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestBandwidthByLink checks rates of ranks and hosts, and which limit they stand beside.
func TestBandwidthByLink(t *testing.T) {
	f := newFilm(4) // on host0 and host1
	f.SetCopying(4e9, func(host string) bool { return host == "host0" })
	send := func(r *feed.Figures, i int, bytes, time uint64) {
		r.Traffic[i].Bytes += bytes
		r.Traffic[i].Time += time
	}
	work := func(rank int, r *feed.Figures) {
		if r.Traffic == nil {
			r.Traffic = []feed.Traffic{{Way: feed.ByMemory, Class: 1, Bytes: 9e9, Time: 1},
				{Way: feed.ByMemory, Class: 3}, {Way: feed.ByTCP, Class: 3}}
		}
		r.NIC = feed.NIC{Name: "eth0", Rate: 1e10}
		send(r, 1, 3e8, 3e8) // 1 GB/s
		send(r, 2, uint64(1+rank)*1e8, 1e9)
		if rank == 0 {
			r.NIC.Rate = 4e9
		}
	}
	if s := f.second(work); len(s.Links) != 0 {
		t.Errorf("after one answer: %+v", s.Links)
	}
	s := f.seconds(2, func(rank int, r *feed.Figures) {
		traffic := append([]feed.Traffic(nil), r.Traffic...)
		r.Traffic = traffic // what has been told stays as it was
		work(rank, r)
	})
	want := []Link{
		{Link: "shm", Class: "32MiB", Sent: 1.2e9, Rate: 1e9, Host: "host0", HostRate: 2e9, Limit: 4e9},
		{Link: "tcp", NIC: "eth0", Class: "32MiB", Sent: 1e9, Rate: 2.5e8, Host: "host0", HostRate: 3e8, Limit: 5e8},
	}
	if !reflect.DeepEqual(s.Links, want) {
		t.Errorf("%+v, not %+v", s.Links, want)
	}
	if s := f.seconds(window, func(_ int, r *feed.Figures) {}); len(s.Links) != 0 {
		t.Errorf("nothing is sent any more: %+v", s.Links)
	}
}

// TestNoLimitWithoutAMeasurement checks that a limit which is not known is 0, also for small collectives.
func TestNoLimitWithoutAMeasurement(t *testing.T) {
	for _, class := range []feed.Class{2, 3} {
		f := newFilm(2)
		f.SetCopying(4e9, func(string) bool { return class == 2 })
		s := f.seconds(3, func(_ int, r *feed.Figures) {
			bytes := uint64(0)
			if r.Traffic != nil {
				bytes = r.Traffic[0].Bytes
			}
			r.Traffic = []feed.Traffic{{Way: feed.ByMemory, Class: class, Bytes: bytes + 1e6, Time: bytes + 1e6}}
		})
		if len(s.Links) != 1 || s.Links[0].Limit != 0 || s.Links[0].Rate < 9.9e8 {
			t.Errorf("%+v", s.Links)
		}
	}
}
