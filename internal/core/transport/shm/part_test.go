//go:build linux

package shm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// openHosts opens the segments of several hosts in one process; the result is by
// world rank.
func openHosts(t *testing.T, boardBytes int, hosts ...[]int) []*Network {
	t.Helper()
	generation.Add(1)
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	nets, errs := make([]*Network, size), make([]error, size)
	var wg sync.WaitGroup
	for _, ranks := range hosts {
		for place, r := range ranks {
			c := testConfig(t, place, len(ranks))
			c.Ranks, c.BoardBytes = ranks, boardBytes
			wg.Go(func() { nets[r], errs[r] = Open(t.Context(), c) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range nets {
			n.Close()
		}
	})
	return nets
}

// Hosts whose segments are on one machine share nothing, and name world ranks.
func TestHostsAreApart(t *testing.T) {
	nets := openHosts(t, 0, []int{0, 3}, []int{1, 2, 4})
	lane := openLanes(t, nets, 0, []int{1, 2, 4})
	if lane[2].Shared.Rank() != 2 || lane[2].Shared.Size() != 3 {
		t.Errorf("rank 4 is %d of %d", lane[2].Shared.Rank(), lane[2].Shared.Size())
	}
	if _, err := nets[0].OpenLane(1, 0, []int{0, 1}); err == nil || !strings.Contains(err.Error(),
		"ranks of this host, which are [0 3]") {
		t.Errorf("a lane with a rank of another host: %v", err)
	}
	nets[4].Abort(errors.New("out of paper"))
	if err := nets[1].Err(); err == nil || err.Error() != "out of paper (reported by rank 4)" {
		t.Errorf("rank 1 has %v", err)
	}
	if err := nets[0].Err(); err != nil {
		t.Errorf("the other host has %v", err)
	}
	nets[0].Abort(&transport.Report{Rank: 4, Text: "out of paper"})
	if err := nets[3].Err(); err == nil || err.Error() != "out of paper (reported by rank 4)" {
		t.Errorf("rank 3 has %v", err)
	}
}

// A rank that waits for another one to open a lane names it as people know it.
func TestWaitingForALaneNamesTheRank(t *testing.T) {
	n := openHosts(t, 0, []int{0}, []int{1, 2})[2]
	n.cfg.Timeout = 10 * time.Millisecond
	n.cfg.Describe = func(rank int) string { return fmt.Sprintf("rank %d on host h1", rank) }
	_, err := n.OpenLane(1, 0, []int{1, 2})
	want := "open lane 1 of ranks [1 2]: rank 2 on host h1: waited 10ms for rank 1 on host h1 to make it"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The boards of a Part have the shapes that were asked for, are formatted anew for every incarnation, and ring members
// that wait for room.
func TestPart(t *testing.T) {
	small, large := board.Standard(2, 1, 8), board.Standard(2, 2, 64)
	large.LogBytes *= 2
	room := BoardBytes(small, large)
	nets := openHosts(t, room, []int{0}, []int{1, 2})
	open := func(shapes ...board.Config) (parts [2]*Part, errs [2]error) {
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() { parts[i], errs[i] = nets[1+i].OpenPart(5, []int{1, 2}, shapes...) })
		}
		wg.Wait()
		return parts, errs
	}
	for incarnation := range 3 {
		parts, errs := open(small, large)
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		for i, p := range parts {
			if p.Shared.Rank() != i || len(p.Boards) != 2 {
				t.Fatalf("member %d is %d, with %d boards", i, p.Shared.Rank(), len(p.Boards))
			}
		}
		want := fmt.Sprintf("incarnation %d", incarnation)
		if n, err := parts[0].Boards[1].Publish([]byte(want)); n == 0 || err != nil {
			t.Fatal(n, err)
		}
		if ok, err := parts[1].Boards[0].Post(1, []byte(want)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if records, err := parts[1].Boards[1].Next(1); err != nil || len(records) != 1 ||
			string(records[0].Payload) != want {
			t.Errorf("member 1 reads %v, %v", records, err)
		}
		posted := ""
		if err := parts[0].Boards[0].TakeRequests(func(from []int, p []byte) {
			posted = fmt.Sprint(from[0], " ", string(p))
		}); err != nil || posted != "1 "+want {
			t.Errorf("member 0 reads %q, %v", posted, err)
		}
		ticket := nets[2].Bell().Arm()
		parts[0].Ring(1)
		nets[2].Bell().Sleep(ticket, patience) // a lost ring would be a time-out of the test
		for r := 1; r <= 2; r++ {
			if err := nets[r].CloseLane(5); err != nil {
				t.Fatal(err)
			}
		}
	}
	large.LogBytes *= 2
	for _, err := range func() [2]error { _, errs := open(small, large); return errs }() {
		if err == nil || !strings.Contains(err.Error(), "are left for them") {
			t.Errorf("boards beyond the room: %v", err)
		}
	}
}
