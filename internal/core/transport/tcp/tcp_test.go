package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds every wait of a test. It is long, because only a test that hangs uses it up.
const patience = 20 * time.Second

// world makes the networks of size ranks over the loopback interface. change may
// alter a rank's Config.
func world(t testing.TB, size int, change func(rank int, c *Config)) []*Network {
	t.Helper()
	listeners := make([]net.Listener, size)
	for r := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[r] = l
	}
	networks := make([]*Network, size)
	for r := range networks {
		c := Config{
			Rank: r, Size: size, Key: []byte("the job's secret"), Generation: 7, Listener: listeners[r], Cards: 8,
			Addrs: func(rank int) []string { return []string{listeners[rank].Addr().String()} },
		}
		if change != nil {
			change(r, &c)
		}
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		networks[r] = n
	}
	t.Cleanup(func() { closeAll(networks) })
	return networks
}

func closeAll(networks []*Network) {
	var g sync.WaitGroup
	for _, n := range networks {
		g.Go(func() { n.Close() })
	}
	g.Wait()
}

func openAll(t testing.TB, networks []*Network, id int) []*transport.Lane {
	t.Helper()
	members := make([]int, len(networks))
	for i, n := range networks {
		members[i] = n.cfg.Rank
	}
	lanes := make([]*transport.Lane, len(networks))
	for i, n := range networks {
		l, err := n.OpenLane(id, 0, members)
		if err != nil {
			t.Fatal(err)
		}
		lanes[i] = l
	}
	return lanes
}

// until drives n as an engine does (poll, arm, poll, sleep) until done returns true.
func until(t *testing.T, n *Network, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ticket := n.bell.Arm()
		if done() {
			n.bell.Disarm()
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("rank %d: nothing comes; %v", n.cfg.Rank, n.Err())
			panic("see above")
		}
		n.bell.Sleep(ticket, patience)
	}
}

// untilErr waits for the network's abort.
func untilErr(t *testing.T, n *Network) error {
	t.Helper()
	until(t, n, func() bool { return n.Err() != nil })
	return n.Err()
}

// All pairs exchange messages of all sizes, both directions at once.
func TestMessagesArriveWholeAndInOrder(t *testing.T) {
	for _, streams := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d streams", streams), func(t *testing.T) { exchangeAll(t, streams, false) })
	}
}

func exchangeAll(t *testing.T, streams int, tls bool) {
	sizes := []int{0, 1, 15, 16, 17, readAhead - headerSize, readAhead - 1, readAhead, readAhead + 1, 3, 0, 70_000,
		2*minPart - 1, 2 * minPart, 2*minPart + 1, 3*minPart + 65, 1 << 20, 5 << 20, 5}
	networks := world(t, 3, func(_ int, c *Config) { c.Streams, c.TLS = streams, certtest.Own(tls) })
	lanes := openAll(t, networks, 0)
	message := func(from, to, k int) []byte {
		p := make([]byte, sizes[k])
		rnd := rand.NewChaCha8([32]byte{byte(from), byte(to), byte(k)})
		rnd.Read(p)
		return p
	}
	var g sync.WaitGroup
	for me, n := range networks {
		g.Go(func() {
			c := lanes[me].Comm
			sent, received := make([]int, len(networks)), make([]int, len(networks))
			landing := make([][]byte, len(networks))
			until(t, n, func() bool {
				if n.Err() != nil {
					t.Error(n.Err())
					return true
				}
				all := true
				for peer := range networks {
					if peer == me {
						continue
					}
					if c.Sent(peer) && sent[peer] < len(sizes) {
						c.Send(peer, message(me, peer, sent[peer]))
						sent[peer]++
					}
					if c.Received(peer) && received[peer] <= len(sizes) {
						if k := received[peer]; k > 0 && !bytes.Equal(landing[peer], message(peer, me, k-1)) {
							t.Errorf("message %d from %d to %d is damaged", k-1, peer, me)
						}
						if received[peer] < len(sizes) {
							landing[peer] = make([]byte, sizes[received[peer]])
							c.Recv(peer, landing[peer])
						}
						received[peer]++
					}
					all = all && received[peer] > len(sizes) && sent[peer] == len(sizes) && c.Sent(peer)
				}
				return all
			})
		})
	}
	g.Wait()
}

func TestLengthMismatchAborts(t *testing.T) {
	networks := world(t, 2, nil)
	lanes := openAll(t, networks, 0)
	lanes[0].Comm.Send(1, make([]byte, 10))
	lanes[1].Comm.Recv(0, make([]byte, 11))
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) || networks[1].Err() != nil })
	for _, n := range networks {
		if err := untilErr(t, n); !strings.Contains(err.Error(), "rank 0 sent 10 bytes where rank 1 expects 11") {
			t.Errorf("rank %d: %v", n.cfg.Rank, err)
		}
	}
}

// A stuck lane must not disturb another lane between the same ranks.
func TestLanesAreIndependent(t *testing.T) {
	networks := world(t, 2, nil)
	stuck, free := openAll(t, networks, 1), openAll(t, networks, 2)
	stuck[0].Comm.Send(1, make([]byte, 64<<20)) // no receive: fills the socket
	for range 3 {
		p := make([]byte, 1<<20)
		free[0].Comm.Send(1, p)
		free[1].Comm.Recv(0, p)
		until(t, networks[1], func() bool { return free[1].Comm.Received(0) })
		until(t, networks[0], func() bool { return free[0].Comm.Sent(1) })
	}
	if stuck[0].Comm.Sent(1) {
		t.Error("64 MiB went into a socket that nobody reads")
	}
}

func TestBoardConversation(t *testing.T) {
	var woken [4]atomic.Int32
	networks := world(t, 4, func(r int, c *Config) { c.Wake = func() { woken[r].Add(1) } })
	c := &conversation{t, networks, openAll(t, networks, 3)}
	c.request(func() bool { return woken[0].Load() >= 3 })
	card, gen := c.respond()
	for range 100 {
		c.complete(card, gen)
	}
	c.retire(card, gen)
	c.close()
}

// A conversation lets all members of a lane use its board. Member 0 is the coordinator.
type conversation struct {
	t        *testing.T
	networks []*Network
	lanes    []*transport.Lane
}

// next returns the next batch that member m reads.
func (c *conversation) next(m int) (records []transport.Record) {
	until(c.t, c.networks[m], func() bool {
		if err := c.networks[m].Err(); err != nil {
			c.t.Fatal(err)
		}
		records = nextBatch(c.lanes[m])
		return records != nil
	})
	return records
}

// request lets each member post a request, which the coordinator reads once it has been woken.
func (c *conversation) request(woken func() bool) {
	for m, l := range c.lanes {
		if !post(l, fmt.Appendf(nil, "request of %d", m)) {
			c.t.Fatal("no room")
		}
	}
	eventually(c.t, woken) // before the driver takes the frames itself
	seen := map[int]string{}
	until(c.t, c.networks[0], func() bool {
		c.lanes[0].Poller.Poll()
		c.lanes[0].Coordination.TakeRequests(func(from []int, p []byte) { seen[from[0]] = string(p) })
		return len(seen) == 4
	})
	for m, text := range seen {
		if text != fmt.Sprintf("request of %d", m) {
			c.t.Errorf("from %d: %q", m, text)
		}
	}
}

// respond acquires a card, and publishes a response, which all read.
func (c *conversation) respond() (card, gen uint32) {
	card, gen, ok := c.lanes[0].Coordination.Acquire()
	if !ok || c.lanes[0].Coordination.Publish([]byte("response")) == 0 {
		c.t.Fatal("cannot publish")
	}
	for m := range c.lanes {
		if r := c.next(m); len(r) != 1 || r[0].Kind != transport.RecordResponse || string(r[0].Payload) != "response" {
			c.t.Errorf("member %d: %v", m, r)
		}
	}
	return card, gen
}

// complete lets all members mark a card, in any order, and read that it is complete.
func (c *conversation) complete(card, gen uint32) {
	for _, m := range rand.Perm(len(c.lanes)) {
		if !mark(c.lanes[m], card, gen) {
			c.t.Fatal("refused")
		}
	}
	for m := range c.lanes {
		if r := c.next(m); len(r) != 1 || r[0].Kind != transport.RecordCard || r[0].Card != card {
			c.t.Errorf("member %d: %v", m, r)
		}
	}
}

// retire lets a member mark a card that has been retired, and read that its mark is stale.
func (c *conversation) retire(card, gen uint32) {
	c.lanes[0].Coordination.Retire(card)
	mark(c.lanes[2], card, gen)
	until(c.t, c.networks[2], func() bool {
		stale := false
		for _, m := range []int{0, 2} { // the log says so
			if r := nextBatch(c.lanes[m]); r != nil {
				c.t.Errorf("member %d: %v", m, r)
			}
		}
		c.lanes[2].Board.TakeStale(func(s, g uint32) { stale = s == card && g == gen })
		return stale
	})
}

// close lets member 3 close the board. All read its end.
func (c *conversation) close() {
	c.lanes[0].Coordination.Publish([]byte("last"))
	c.lanes[3].Board.Close()
	until(c.t, c.networks[0], func() bool { return c.lanes[0].Board.ClosedBy() == 3 })
	for m := range c.lanes {
		if r := c.next(m); len(r) != 1 || string(r[0].Payload) != "last" {
			c.t.Errorf("member %d: %v", m, r)
		}
	}
	for m, n := range c.networks {
		until(c.t, n, func() bool {
			if nextBatch(c.lanes[m]) != nil {
				c.t.Error("a batch after the last")
			}
			return c.lanes[m].Board.Closed()
		})
		if by := c.lanes[m].Board.ClosedBy(); by != 3 {
			c.t.Errorf("member %d: closed by %d", m, by)
		}
	}

}

// A rank that is a step ahead sends to a lane that its peer has not opened yet.
func TestLaneOpenedLate(t *testing.T) {
	networks := world(t, 2, nil)
	l1, err := networks[1].OpenLane(5, 0, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	post(l1, []byte("early"))
	l1.Comm.Send(0, []byte("early data"))
	until(t, networks[1], func() bool { return l1.Comm.Sent(0) })
	l0, err := networks[0].OpenLane(5, 0, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	l0.Comm.Recv(1, p)
	got := ""
	until(t, networks[0], func() bool {
		l0.Poller.Poll()
		l0.Coordination.TakeRequests(func(_ []int, p []byte) { got = string(p) })
		return got == "early" && l0.Comm.Received(1)
	})
	if string(p) != "early data" {
		t.Errorf("%q", p)
	}
}

// post and mark do what a member does, and then give its board the turn that passes it on.
func post(l *transport.Lane, request []byte) bool {
	defer comeRound(l)
	return l.Board.Post(request)
}

func mark(l *transport.Lane, card, gen uint32) bool {
	defer comeRound(l)
	return l.Board.Mark(card, gen)
}

func comeRound(l *transport.Lane) {
	if l.Poller != nil {
		l.Poller.(*boardPoller).BoardPoller.Poll() // these tests poll for frames elsewhere
	}
}

// nextBatch is a whole round of a member's driver that could begin another batch.
func nextBatch(l *transport.Lane) []transport.Record {
	if l.Poller != nil {
		l.Poller.Poll()
		l.Poller.Cut()
	}
	return l.Board.Next()
}

func TestOpenLaneChecksItsArguments(t *testing.T) {
	n := world(t, 3, nil)[1]
	for _, members := range [][]int{nil, {0, 2}, {1, 0}, {1, 3}, {-1, 1}, {1, 1}} {
		if _, err := n.OpenLane(1, 0, members); err == nil {
			t.Errorf("members %v pass", members)
		}
	}
	if _, err := n.OpenLane(1, 0, []int{1}); err != nil {
		t.Error(err)
	}
	if _, err := n.OpenLane(1, 0, []int{1}); err == nil {
		t.Error("a lane can be opened twice")
	}
}

func TestAbortReachesAll(t *testing.T) {
	networks := world(t, 4, nil)
	lanes := openAll(t, networks, 0)
	// All connections lead to member 0, which must pass the news on.
	for _, m := range []int{1, 2, 3} {
		post(lanes[m], []byte("hello"))
	}
	seen := 0
	until(t, networks[0], func() bool {
		lanes[0].Poller.Poll()
		lanes[0].Coordination.TakeRequests(func([]int, []byte) { seen++ })
		return seen == 3
	})
	cause := errors.New("the GPU has left the bus")
	networks[2].Abort(cause)
	networks[2].Abort(errors.New("something later"))
	if networks[2].Err() != cause {
		t.Errorf("rank 2: %v", networks[2].Err())
	}
	for _, r := range []int{0, 1, 3} {
		if err := untilErr(t, networks[r]); err.Error() != "the GPU has left the bus (reported by rank 2)" {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Nobody reads the data, and the abort must come through all the same.
func TestAbortPassesStuckData(t *testing.T) {
	for _, streams := range []int{1, 3} {
		networks := world(t, 2, func(_ int, c *Config) { c.Streams = streams })
		lanes := openAll(t, networks, 0)
		lanes[0].Comm.Send(1, make([]byte, 64<<20))
		eventually(t, func() bool { return !lanes[0].Comm.Sent(1) && connections(networks[1]) == streams })
		networks[1].Abort(errors.New("enough"))
		if err := untilErr(t, networks[0]); err.Error() != "enough (reported by rank 1)" {
			t.Error(err)
		}
	}
}

// eventually polls for an event that rings no bell.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
}

func connections(n *Network) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// ownDescriptors is the number of a network's descriptors besides those of its connections.
func ownDescriptors(n *Network) int {
	if n.edges == nil {
		return 1
	}
	return 4 // the listener's, the bell's two, and the keeper's
}
