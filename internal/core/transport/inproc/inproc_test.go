package inproc

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// long is a sleep that a test never waits out: a test that reaches it fails.
const long = 20 * time.Second

func openLanes(t *testing.T, networks []transport.Network) []*transport.Lane {
	t.Helper()
	members := make([]int, len(networks))
	for r := range members {
		members[r] = r
	}
	lanes := make([]*transport.Lane, len(networks))
	for r, n := range networks {
		var err error
		if lanes[r], err = n.OpenLane(0, 0, members); err != nil {
			t.Fatal(err)
		}
	}
	return lanes
}

// mustRing fails if nobody has rung the bell since ticket.
func mustRing(t *testing.T, what string, b transport.Bell, ticket uint32) {
	t.Helper()
	began := time.Now()
	b.Sleep(ticket, long)
	if time.Since(began) >= long {
		t.Errorf("%s did not ring the bell", what)
	}
}

func TestRingAfterArmIsNotLost(t *testing.T) {
	b := newBell()
	b.Ring() // unarmed, so it leaves nothing behind
	ticket := b.Arm()
	b.Ring()
	b.Ring()
	mustRing(t, "a ring before Sleep", b, ticket)

	// The token of those rings must not end a later sleep early.
	began := time.Now()
	b.Sleep(b.Arm(), 5*time.Millisecond)
	if time.Since(began) < 5*time.Millisecond {
		t.Error("a sleep ended before its time without a ring")
	}

	b.Arm()
	b.Disarm()
	if b.armed.Load() {
		t.Error("still armed after Disarm")
	}
	b.Sleep(b.Arm(), 0) // no time to sleep: returns, disarmed
	if b.armed.Load() {
		t.Error("still armed after Sleep")
	}
}

// Two drivers hand a counter to and fro, and sleep whenever it is not their turn. Any lost ring costs `long`.
func TestNoWakeUpIsLost(t *testing.T) {
	const turns = 5000
	bells := []*bell{newBell(), newBell()}
	var turn atomic.Int64
	var wg sync.WaitGroup
	for me := range bells {
		wg.Go(func() {
			for n := int64(me); n < turns; n += 2 {
				for turn.Load() != n {
					ticket := bells[me].Arm()
					if turn.Load() == n {
						bells[me].Disarm()
						break
					}
					mustRing(t, "the other driver", bells[me], ticket)
				}
				turn.Add(1)
				bells[1-me].Ring()
			}
		})
	}
	wg.Wait()
}

func TestBellDoesNotAllocate(t *testing.T) {
	b := newBell()
	n := testing.AllocsPerRun(100, func() {
		ticket := b.Arm()
		b.Ring()
		b.Sleep(ticket, long)
		b.Sleep(b.Arm(), time.Microsecond)
	})
	if n != 0 {
		t.Errorf("%v allocations a sleep", n)
	}
}

func TestSharedBuffers(t *testing.T) {
	lanes := openLanes(t, NewWorld(3, Options{Shared: true, ChunkBytes: 1000, Depth: 3}))
	s := lanes[1].Shared
	if lanes[1].Comm != nil {
		t.Error("a lane offers both Shared and Comm")
	}
	if s.Rank() != 1 || s.Size() != 3 || s.Depth() != 3 || s.ChunkBytes() != 1152 {
		t.Errorf("rank %d, size %d, depth %d, chunks of %d bytes", s.Rank(), s.Size(), s.Depth(), s.ChunkBytes())
	}
	// Every buffer is its own memory: write all, then look at all.
	buffer := func(view, m, k int) []byte { return lanes[view].Shared.Buffer(m, uint64(k)) }
	for m := range 3 {
		for k := range 3 {
			b := buffer(m, m, k)
			if len(b) != 1152 || uintptr(unsafe.Pointer(&b[0]))%64 != 0 {
				t.Errorf("buffer of %d bytes at %p", len(b), &b[0])
			}
			copy(b, bytes.Repeat([]byte{byte(10*m + k)}, len(b)))
		}
	}
	for m := range 3 {
		for k := range 3 {
			want := bytes.Repeat([]byte{byte(10*m + k)}, 1152)
			if !bytes.Equal(buffer(0, m, k+3), want) {
				t.Errorf("chunk %d of member %d is not in buffer %d", k+3, m, k)
			}
		}
	}
}

func TestSharedCounters(t *testing.T) {
	networks := NewWorld(2, Options{Shared: true})
	lanes := openLanes(t, networks)
	ticket := networks[1].Bell().Arm()
	lanes[0].Shared.Advance(transport.Mid, 7)
	mustRing(t, "Advance", networks[1].Bell(), ticket)
	for m := range 2 {
		for p := range transport.NumPhases {
			want := uint64(0)
			if m == 0 && p == transport.Mid {
				want = 7
			}
			if got := lanes[1].Shared.Counter(m, p); got != want {
				t.Errorf("member %d, phase %d: %d, want %d", m, p, got, want)
			}
		}
	}
}

// A lane's members share memory by host, wherever the ranks are, and a lane that is on one host needs no messages.
func TestLanesOverHosts(t *testing.T) {
	networks := NewWorld(5, Options{Hosts: [][]int{{1, 3}, {0, 2}, {4}}})
	lanes := openLanes(t, networks)
	for m, want := range []struct{ rank, size int }{{0, 2}, {0, 2}, {1, 2}, {1, 2}, {0, 0}} {
		l := lanes[m]
		if l.Comm == nil || l.Comm.Rank() != m || l.Comm.Size() != 5 {
			t.Errorf("member %d: no Comm among all", m)
		}
		if (l.Shared != nil) != (want.size > 0) {
			t.Errorf("member %d: Shared is %v", m, l.Shared)
		} else if l.Shared != nil && (l.Shared.Rank() != want.rank || l.Shared.Size() != want.size) {
			t.Errorf("member %d is %d of %d on its host", m, l.Shared.Rank(), l.Shared.Size())
		}
		if !slices.EqualFunc(l.Hosts, [][]int{{0, 2}, {1, 3}, {4}}, slices.Equal) {
			t.Errorf("member %d: hosts %v", m, l.Hosts)
		}
	}
	lanes[0].Shared.Buffer(0, 0)[5] = 7
	if lanes[2].Shared.Buffer(0, 0)[5] != 7 || lanes[1].Shared.Buffer(0, 0)[5] != 0 {
		t.Error("memory is not that of the host")
	}
	ticket := networks[2].Bell().Arm()
	lanes[0].Shared.Advance(transport.In, 1)
	mustRing(t, "Advance", networks[2].Bell(), ticket)

	pair, err := networks[3].OpenLane(1, 0, []int{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	if pair.Comm != nil || pair.Hosts != nil || pair.Shared == nil || pair.Shared.Rank() != 1 ||
		pair.Shared.Size() != 2 {
		t.Errorf("a lane on one host: %+v", pair)
	}
}

func TestCommMeetsInEitherOrder(t *testing.T) {
	networks := NewWorld(2, Options{})
	lanes := openLanes(t, networks)
	a, b := lanes[0].Comm, lanes[1].Comm
	for _, sendFirst := range []bool{true, false} {
		for _, n := range []int{0, 1, 100} {
			src, dst := bytes.Repeat([]byte{7}, n), make([]byte, n)
			first, second := func() { b.Recv(0, dst) }, func() { a.Send(1, src) }
			bell := networks[1].Bell()
			if sendFirst {
				first, second = second, first
				bell = networks[0].Bell()
			}
			first()
			if sendFirst && a.Sent(1) || !sendFirst && b.Received(0) {
				t.Error("done before the other side has posted")
			}
			ticket := bell.Arm()
			second()
			mustRing(t, "who came second", bell, ticket)
			if !a.Sent(1) || !b.Received(0) || !bytes.Equal(src, dst) {
				t.Errorf("send first %v: %d bytes did not arrive", sendFirst, n)
			}
		}
	}
	if err := networks[0].Err(); err != nil {
		t.Error(err)
	}
}

func TestCommToItself(t *testing.T) {
	c := openLanes(t, NewWorld(1, Options{}))[0].Comm
	dst := make([]byte, 1)
	c.Send(0, []byte{3})
	c.Recv(0, dst)
	if !c.Sent(0) || !c.Received(0) || dst[0] != 3 {
		t.Error("a message to itself did not arrive")
	}
}

func TestCommOfAnotherLengthAborts(t *testing.T) {
	networks := NewWorld(3, Options{})
	lanes := openLanes(t, networks)
	dst := []byte{9, 9}
	lanes[2].Comm.Recv(1, dst)
	lanes[1].Comm.Send(2, []byte{1, 2, 3})
	for r, n := range networks {
		if err := n.Err(); err == nil || !strings.Contains(err.Error(), "ranks 1 and 2: a message of 3 bytes met a "+
			"receive of 2") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if lanes[2].Comm.Received(1) || !slices.Equal(dst, []byte{9, 9}) {
		t.Error("the receive was filled")
	}
}

func TestSecondPostPanics(t *testing.T) {
	c := openLanes(t, NewWorld(2, Options{}))[0].Comm
	for _, post := range []func(){
		func() { c.Send(1, nil) },
		func() { c.Recv(1, nil) },
	} {
		post()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			post()
		}()
	}
}

// After Close nothing may touch the rank's posted buffers.
func TestCloseWithdraws(t *testing.T) {
	networks := NewWorld(3, Options{})
	lanes := openLanes(t, networks)
	dst := make([]byte, 1)
	lanes[0].Comm.Recv(1, dst)
	for range 2 {
		if err := networks[0].Close(); err != nil {
			t.Error(err)
		}
	}
	if err := networks[1].Err(); err != nil {
		t.Errorf("nobody waits for rank 0, but: %v", err)
	}
	networks[0].Abort(errors.New("from beyond"))
	if err := networks[1].Err(); err != nil {
		t.Errorf("a closed network aborted the world: %v", err)
	}
	ticket := networks[2].Bell().Arm()
	lanes[1].Comm.Send(0, []byte{1})
	mustRing(t, "the abort", networks[2].Bell(), ticket)
	if dst[0] != 0 {
		t.Error("a buffer was filled after Close")
	}
	if err := networks[2].Err(); err == nil || !strings.Contains(err.Error(), "rank 1 waits for rank 0") {
		t.Errorf("a send to a closed rank: %v", err)
	}
}

func TestCloseAbortsWhoWaits(t *testing.T) {
	for _, post := range []func(transport.Comm){
		func(c transport.Comm) { c.Send(0, []byte{1}) },
		func(c transport.Comm) { c.Recv(0, []byte{1}) },
	} {
		networks := NewWorld(2, Options{})
		post(openLanes(t, networks)[1].Comm)
		networks[0].Close()
		if networks[1].Err() == nil {
			t.Error("rank 1 would wait for ever")
		}
	}
}

func TestAbortReachesAll(t *testing.T) {
	networks := NewWorld(4, Options{})
	cause := errors.New("cause")
	tickets := make([]uint32, len(networks))
	for r, n := range networks {
		if n.Err() != nil {
			t.Error(n.Err())
		}
		tickets[r] = n.Bell().Arm()
	}
	networks[2].Abort(cause)
	networks[1].Abort(errors.New("later"))
	for r, n := range networks {
		mustRing(t, "Abort", n.Bell(), tickets[r])
		if n.Err() != cause {
			t.Errorf("rank %d: %v, want the first cause", r, n.Err())
		}
	}
	if _, err := networks[0].OpenLane(0, 0, []int{0}); !errors.Is(err, cause) {
		t.Errorf("OpenLane after an abort: %v", err)
	}
}

func TestOpenLaneRefuses(t *testing.T) {
	networks := NewWorld(3, Options{})
	open := func(rank, id int, members ...int) error {
		_, err := networks[rank].OpenLane(id, 0, members)
		return err
	}
	if err := errors.Join(open(0, 5, 0, 2), open(2, 5, 0, 2), open(1, 6, 1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{open(0, 5, 0, 2), "has opened it already"},
		{open(1, 5, 0, 1, 2), "another rank [0 2]"},
		{open(1, 7, 0, 2), "rank 1 is not among"},
		{open(1, 8, 2, 1), "not ascending"},
		{open(1, 8, 1, 1), "not ascending"},
		{open(1, 8, 1, 3), "not ascending"},
		{open(1, 8), "no members"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v; want %q", c.err, c.want)
		}
	}
	networks[1].Close()
	if err := open(1, 9, 1); err == nil {
		t.Error("OpenLane after Close")
	}
}

func TestBoardRingsWhoHasSomethingToRead(t *testing.T) {
	networks := NewWorld(3, Options{Shared: true, Cards: 4})
	lanes := openLanes(t, networks)
	arm := func() []uint32 {
		tickets := make([]uint32, len(networks))
		for r, n := range networks {
			tickets[r] = n.Bell().Arm()
		}
		return tickets
	}
	allRing := func(what string, tickets []uint32) {
		t.Helper()
		for r, n := range networks {
			mustRing(t, what, n.Bell(), tickets[r])
		}
	}

	tickets := arm()
	if !lanes[2].Board.Post([]byte("request")) {
		t.Fatal("no room")
	}
	mustRing(t, "Post", networks[0].Bell(), tickets[0])
	lanes[0].Coordination.TakeRequests(func(froms []int, p []byte) {
		from := froms[0]
		if from != 2 || string(p) != "request" {
			t.Errorf("request %q from %d", p, from)
		}
	})

	card, gen, ok := lanes[0].Coordination.Acquire()
	if !ok {
		t.Fatal("no card")
	}
	tickets = arm()
	if lanes[0].Coordination.Publish([]byte("response")) == 0 {
		t.Fatal("no room")
	}
	allRing("Publish", tickets)

	tickets = arm()
	for r, l := range lanes {
		if !l.Board.Mark(card, gen) {
			t.Errorf("rank %d: mark refused", r)
		}
		if r == 1 {
			if marked := lanes[0].Coordination.Marked(card); !slices.Equal(marked, []int{0, 1}) {
				t.Errorf("marked by %v", marked)
			}
		}
	}
	allRing("the mark that completes", tickets)
	for r, l := range lanes {
		records := slices.Clone(l.Board.Next())
		if len(records) != 2 || string(records[0].Payload) != "response" || records[1].Kind != transport.RecordCard ||
			records[1].Card != card {
			t.Errorf("rank %d: %v", r, records)
		}
	}

	if marked, ok := lanes[0].Coordination.Retire(card); !ok || len(marked) != 0 {
		t.Errorf("Retire: %v, %v", marked, ok)
	}
	if lanes[1].Board.Mark(card, gen) {
		t.Error("a stale mark was accepted")
	}

	if by := lanes[0].Board.ClosedBy(); by != -1 || lanes[0].Board.Closed() {
		t.Errorf("closed by %d", by)
	}
	tickets = arm()
	lanes[1].Board.Close()
	allRing("Close", tickets)
	for r, l := range lanes {
		if l.Board.ClosedBy() != 1 || !l.Board.Closed() {
			t.Errorf("rank %d: closed by %d, read to the end: %v", r, l.Board.ClosedBy(), l.Board.Closed())
		}
	}
	if err := networks[0].Err(); err != nil {
		t.Error(err)
	}
}

// A member whose mailbox was full hears the bell once there is room.
func TestBoardRingsWhoFoundNoRoom(t *testing.T) {
	networks := NewWorld(2, Options{Shared: true})
	lanes := openLanes(t, networks)
	for lanes[1].Board.Post(make([]byte, transport.MaxRecord/4)) {
	}
	ticket := networks[1].Bell().Arm()
	lanes[0].Coordination.TakeRequests(func([]int, []byte) {})
	mustRing(t, "Requests", networks[1].Bell(), ticket)
	if !lanes[1].Board.Post([]byte("x")) {
		t.Error("no room after all was read")
	}
}

// An error of the board aborts the world.
func TestBoardErrorAborts(t *testing.T) {
	networks := NewWorld(2, Options{})
	lanes := openLanes(t, networks)
	if lanes[1].Board.Post(make([]byte, transport.MaxRecord+1)) {
		t.Error("too long a request was accepted")
	}
	if err := networks[0].Err(); err == nil || !strings.HasPrefix(err.Error(), "rank 1: ") {
		t.Errorf("%v; want an error of rank 1", err)
	}
}

// A group is published together by the last mark, which rings everybody.
func TestBoardMarksGroups(t *testing.T) {
	networks := NewWorld(2, Options{Shared: true, Cards: 4})
	lanes := openLanes(t, networks)
	group := make([]transport.Mark, 3)
	for i := range group {
		group[i].Card, group[i].Gen, _ = lanes[0].Coordination.Acquire()
	}
	if !lanes[1].Board.MarkGroup(group) || lanes[1].Board.Next() != nil {
		t.Fatal("half marked: refused or published")
	}
	ticket := networks[1].Bell().Arm()
	if !lanes[0].Board.MarkGroup(group) {
		t.Fatal("refused")
	}
	mustRing(t, "the last mark", networks[1].Bell(), ticket)
	for r, l := range lanes {
		records := l.Board.Next()
		if len(records) != 3 || records[0].Card != group[0].Card || records[2].Card != group[2].Card {
			t.Errorf("rank %d: %v", r, records)
		}
	}
	lanes[0].Coordination.Retire(group[2].Card)
	if lanes[1].Board.MarkGroup(group) {
		t.Error("a group with a stale mark was accepted")
	}
	if marked := lanes[0].Coordination.Marked(group[0].Card); len(marked) > 0 {
		t.Errorf("marked by %v", marked)
	}
}
