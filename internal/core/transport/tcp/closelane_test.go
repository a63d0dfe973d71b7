package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// quiet is a world in which a lost connection causes an abort at once, and no connection may be lost.
func quiet(t *testing.T, size int) []*Network {
	networks := world(t, size, func(r int, c *Config) {
		c.Grace = time.Millisecond
		c.Lost = func(rank int, err error) { t.Errorf("rank %d has lost rank %d: %v", r, rank, err) }
	})
	t.Cleanup(func() {
		for r, n := range networks {
			if err := n.Err(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
	return networks
}

func mustClose(t *testing.T, n *Network, id int) {
	t.Helper()
	start := time.Now()
	if err := n.CloseLane(id); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > patience/2 {
		t.Errorf("closing lane %d took %v", id, d)
	}
}

// noConnections waits until the connections of closed lanes are gone.
func noConnections(t *testing.T, networks []*Network) {
	t.Helper()
	eventually(t, func() bool {
		for _, n := range networks {
			if connections(n) > 0 {
				return false
			}
		}
		return true
	})
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

// tooMuch is more bytes than the sockets of a connection hold.
const tooMuch = 32 << 20

// The sender may use its buffer again after CloseLane, and the receiver, which has not closed the lane yet, gets the
// message whole.
func TestTheSenderClosesTheLaneFirst(t *testing.T) {
	networks := quiet(t, 2)
	lanes := openAll(t, networks, 5)
	lanes[0].Comm.Send(1, nil)
	lanes[1].Comm.Recv(0, nil)
	until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	p := pattern(tooMuch, 1)
	lanes[0].Comm.Send(1, p)
	if lanes[0].Comm.Sent(1) || !networks[0].lanes[5].dataOut[1].streams[0].begun() {
		t.Error("the message has not been begun, or is too small")
	}
	mustClose(t, networks[0], 5)
	clear(p)
	got := make([]byte, tooMuch)
	lanes[1].Comm.Recv(0, got)
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if !bytes.Equal(got, pattern(tooMuch, 1)) {
		t.Error("the message is damaged")
	}
	lanes[1].Comm.Recv(0, got) // for which no message comes any more
	noConnections(t, networks)
	mustClose(t, networks[1], 5)
}

// Nothing touches the receiver's buffer after CloseLane, and the sender can go on sending.
func TestTheReceiverClosesTheLaneFirst(t *testing.T) {
	networks := quiet(t, 2)
	lanes := openAll(t, networks, 5)
	got := make([]byte, tooMuch)
	lanes[1].Comm.Recv(0, got)
	c := dialAs(t, networks[0], 5, 1, data)
	c.Write(rawMessage(messageData, 0, tooMuch, "the beginning"))
	eventually(t, func() bool { return connections(networks[1]) == 1 })
	mustClose(t, networks[1], 5)
	for i := range got {
		got[i] = 0xee // the race detector sees any other writer
	}
	c.Write(bytes.Repeat([]byte{1}, tooMuch))
	lanes[0].Comm.Send(1, pattern(tooMuch, 2)) // its first connection is the second here
	until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) || networks[0].Err() != nil })
	if slices.ContainsFunc(got, func(b byte) bool { return b != 0xee }) {
		t.Error("the buffer was touched after CloseLane")
	}
	if lanes[1].Comm.Received(0) {
		t.Error("half a message counts as received")
	}
	mustClose(t, networks[0], 5)
	networks[0].drop(c) // no writer ends it
	noConnections(t, networks)
}

// A member that has closed its lane lets another one go on sending, on old connections and on new ones, until that one
// closes the lane, too.
func TestTalkingToAClosedLane(t *testing.T) {
	networks := quiet(t, 3)
	lanes := openAll(t, networks, 5)
	mustClose(t, networks[0], 5)
	for _, m := range []int{1, 2} {
		post(lanes[m], []byte("too late"))
		lanes[m].Comm.Send(0, pattern(tooMuch, 3))
		until(t, networks[m], func() bool { return lanes[m].Comm.Sent(0) || networks[m].Err() != nil })
	}
	eventually(t, func() bool { return connections(networks[0]) == 4 })
	for _, m := range []int{1, 2} {
		mustClose(t, networks[m], 5)
	}
	noConnections(t, networks)
}

// Messages for the next lane of an id wait until that lane is open, also while the previous one is.
func TestANewIncarnationWaits(t *testing.T) {
	networks := quiet(t, 2)
	old := openAll(t, networks, 5)
	old[1].Comm.Send(0, []byte("old"))
	until(t, networks[1], func() bool { return old[1].Comm.Sent(0) })
	eventually(t, func() bool { return connections(networks[0]) == 1 })
	mustClose(t, networks[1], 5)
	l1, err := networks[1].OpenLane(5, 1, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	l1.Comm.Send(0, []byte("new"))
	post(l1, []byte("new"))
	until(t, networks[1], func() bool { return l1.Comm.Sent(0) })
	eventually(t, func() bool {
		networks[0].mu.Lock()
		defer networks[0].mu.Unlock()
		return len(networks[0].early) == 2
	})
	p := make([]byte, 3)
	old[0].Comm.Recv(1, p)
	until(t, networks[0], func() bool { return old[0].Comm.Received(1) })
	if string(p) != "old" {
		t.Errorf("%q", p)
	}
	old[0].Poller.Poll()
	old[0].Coordination.TakeRequests(func(_ []int, p []byte) { t.Errorf("request %q came through to the old lane", p) })
	mustClose(t, networks[0], 5)
	l0, err := networks[0].OpenLane(5, 1, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	l0.Comm.Recv(1, p)
	requested := false
	until(t, networks[0], func() bool {
		l0.Poller.Poll()
		l0.Coordination.TakeRequests(func(_ []int, p []byte) { requested = string(p) == "new" })
		return requested && l0.Comm.Received(1)
	})
	if string(p) != "new" {
		t.Errorf("%q", p)
	}
}

func TestCloseLaneChecksItsArguments(t *testing.T) {
	n := quiet(t, 2)[0]
	for _, id := range []int{0, 5} {
		if _, err := n.OpenLane(id, 3, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int{0, 4, -1} {
		if n.CloseLane(id) == nil {
			t.Errorf("lane %d can be closed", id)
		}
	}
	mustClose(t, n, 5)
	if n.CloseLane(5) == nil {
		t.Error("a lane can be closed twice")
	}
	for _, incarnation := range []uint32{0, 2, 3} {
		if _, err := n.OpenLane(5, incarnation, []int{0, 1}); err == nil {
			t.Errorf("incarnation %d can follow 3", incarnation)
		}
	}
	if _, err := n.OpenLane(5, 4, []int{0}); err != nil {
		t.Error(err)
	}
	n.Close()
	if n.CloseLane(5) == nil {
		t.Error("a lane of a closed network can be closed")
	}
}

// A rank that is still connecting when the lane is closed gives up without an error.
func TestCloseLaneWhileConnecting(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	networks := world(t, 2, func(_ int, c *Config) {
		c.Addrs = func(int) []string { return []string{silent.Addr().String(), "127.0.0.1:1"} }
	})
	lanes := openAll(t, networks, 5)
	p := make([]byte, 100)
	lanes[1].Comm.Send(0, p)
	post(lanes[1], []byte("hello"))
	lanes[0].Coordination.Publish([]byte("hello"))
	nextBatch(lanes[0])
	for _, n := range networks {
		mustClose(t, n, 5)
	}
	clear(p)
	closeAll(networks)
	for _, n := range networks {
		if n.Err() != nil {
			t.Error(n.Err())
		}
	}
}

// A death is an error on other lanes than the first, too.
func TestDeathOnAnotherLane(t *testing.T) {
	networks := world(t, 2, func(r int, c *Config) {
		if c.Grace = time.Millisecond; r == 0 {
			c.Grace = time.Hour // so that it does not report its own death
		}
	})
	lanes := openAll(t, networks, 5)
	lanes[1].Comm.Recv(0, nil)
	lanes[0].Comm.Send(1, nil)
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	crash(networks[0])
	if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "connection to rank 0") {
		t.Error(err)
	}
}

// A rank closes a lane and then the world, and leaves. A slower rank, which has not closed the lane yet, must not take
// that for an error.
func TestLeavingWhileAnotherLaneIsOpenElsewhere(t *testing.T) {
	for _, leaver := range []int{0, 1} {
		networks := quiet(t, 2)
		worldLanes, lanes := openAll(t, networks, 0), openAll(t, networks, 5)
		stays := 1 - leaver
		lanes[stays].Comm.Recv(leaver, make([]byte, 8))
		lanes[leaver].Comm.Send(stays, make([]byte, 8))
		until(t, networks[stays], func() bool { return lanes[stays].Comm.Received(leaver) })
		lanes[stays].Comm.Recv(leaver, make([]byte, 8))
		lanes[stays].Comm.Send(leaver, make([]byte, tooMuch))

		worldLanes[leaver].Board.Close()
		for m, n := range networks {
			until(t, n, func() bool { nextBatch(worldLanes[m]); return worldLanes[m].Board.Closed() })
		}
		mustClose(t, networks[leaver], 5)
		networks[leaver].Close()
		eventually(t, networks[stays].peers[leaver].left.Load)
		time.Sleep(5 * networks[stays].cfg.Grace) // time in which it would abort
		mustClose(t, networks[stays], 5)
	}
}

// The network is aborted, or closed, while connections of closed lanes are still open.
func TestTheEndOfTheNetworkAfterCloseLane(t *testing.T) {
	for _, abort := range []bool{false, true} {
		networks := world(t, 2, func(_ int, c *Config) { c.Grace = time.Millisecond })
		lanes := openAll(t, networks, 5)
		for m := range networks {
			lanes[m].Comm.Send(1-m, make([]byte, tooMuch))
		}
		for _, n := range networks {
			eventually(t, func() bool { return connections(n) == 2 })
		}
		mustClose(t, networks[0], 5)
		if abort {
			networks[0].Abort(fmt.Errorf("enough"))
			if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "enough") {
				t.Error(err)
			}
			mustClose(t, networks[1], 5)
		}
		start := time.Now()
		closeAll(networks)
		if d := time.Since(start); d > patience/2 {
			t.Errorf("abort %v: closing took %v", abort, d)
		}
	}
}

// TestLanesComeAndGo opens and closes the same ids again and again among random members, each rank at its own pace,
// with messages under way in all directions. No message may come from an earlier lane of the id, and no connection may
// be left.
func TestLanesComeAndGo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const size, rounds = 4, 25
	var open atomic.Int64
	networks := world(t, size, func(r int, c *Config) {
		c.Grace = time.Millisecond
		c.Lost = func(rank int, err error) { t.Errorf("rank %d has lost rank %d: %v", r, rank, err) }
		c.TrackFD = func(_ int, o bool) {
			if o {
				open.Add(1)
			} else {
				open.Add(-1)
			}
		}
	})
	type set struct {
		id          int
		incarnation uint32
		members     []int
		finish      bool // otherwise the lane is closed with everything under way
	}
	var sets []set
	for k := range uint32(rounds) {
		members := rnd.Perm(size)[:1+rnd.IntN(size)]
		slices.Sort(members)
		sets = append(sets, set{1 + rnd.IntN(2), k, members, rnd.IntN(2) == 0})
	}
	var g sync.WaitGroup
	for rank, n := range networks {
		pace := rand.New(rand.NewPCG(seed, uint64(rank)+1))
		g.Go(func() {
			for _, s := range sets {
				me, ok := slices.BinarySearch(s.members, rank)
				if !ok {
					continue
				}
				l, err := n.OpenLane(s.id, s.incarnation, s.members)
				if err != nil {
					t.Error(err)
					return
				}
				visit(t, n, l, s.incarnation, s.finish)
				if me > 0 {
					post(l, []byte("nobody answers"))
				}
				time.Sleep(time.Duration(pace.IntN(2000)) * time.Microsecond)
				mustClose(t, n, s.id)
			}
		})
	}
	g.Wait()
	for _, n := range networks {
		if n.Err() != nil {
			t.Error(n.Err())
		}
	}
	noConnections(t, networks)
	eventually(t, func() bool { return open.Load() == int64(size*ownDescriptors(networks[0])) })
}

// visit exchanges a message with each other member, and checks the messages that come.
func visit(t *testing.T, n *Network, l *transport.Lane, incarnation uint32, finish bool) {
	c := l.Comm
	landing := make([][]byte, c.Size())
	message := func(from int) []byte { return pattern(300_000+1000*from, byte(incarnation)) }
	for m := range landing {
		if m != c.Rank() {
			landing[m] = make([]byte, len(message(m)))
			c.Recv(m, landing[m])
			c.Send(m, message(c.Rank()))
		}
	}
	if !finish {
		return
	}
	until(t, n, func() bool {
		if n.Err() != nil {
			return true
		}
		for m := range landing {
			if m != c.Rank() && !(c.Sent(m) && c.Received(m)) {
				return false
			}
		}
		return true
	})
	for m := range landing {
		if m != c.Rank() && n.Err() == nil && !bytes.Equal(landing[m], message(m)) {
			t.Errorf("incarnation %d: the message from member %d is damaged", incarnation, m)
		}
	}
}
