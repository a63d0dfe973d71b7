package tcp

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// dialAs makes a proved connection from a rank to another one that belongs to no lane of its own. The test writes any
// bytes on it.
func dialAs(t *testing.T, n *Network, id, rank int, s stream) *conn {
	t.Helper()
	c, err := n.connect(n.ctx, n.hello(&lane{id: id}, rank, s))
	if err != nil {
		t.Fatal(err)
	}
	if !n.register(c) {
		t.Fatal("too late")
	}
	return c
}

func rawMessage(kind message, sequence uint32, length uint64, payload string) []byte {
	p := make([]byte, headerSize)
	header{kind, sequence, length}.put(p)
	return append(p, payload...)
}

func TestDeathInTheMiddleOfAMessage(t *testing.T) {
	for name, end := range map[string]func(c *conn){
		"end of file": func(c *conn) { c.CloseWrite() },
		"reset":       func(c *conn) { c.link.Stream.(*net.TCPConn).SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			lost := make(chan int, 9)
			networks := world(t, 2, func(_ int, c *Config) {
				c.Grace = 10 * time.Millisecond
				c.Lost = func(rank int, err error) { lost <- rank }
			})
			lanes := openAll(t, networks, 0)
			c := dialAs(t, networks[0], 0, 1, data)
			lanes[1].Comm.Recv(0, make([]byte, 100))
			c.Write(rawMessage(messageData, 0, 100, "only the beginning"))
			end(c)
			err := untilErr(t, networks[1])
			if !strings.Contains(err.Error(), "connection to rank 0 (127.0.0.1:") ||
				!strings.Contains(err.Error(), "lost") {
				t.Error(err)
			}
			if rank := <-lost; rank != 0 {
				t.Errorf("lost rank %d", rank)
			}
			if lanes[1].Comm.Received(0) {
				t.Error("half a message counts as received")
			}
		})
	}
}

// A better cause may come within the grace.
func TestABetterCauseWins(t *testing.T) {
	better := errors.New("rank 0 was killed by signal 9")
	networks := world(t, 2, nil)
	n := networks[1]
	n.cfg.Grace = time.Hour
	n.cfg.Lost = func(int, error) { n.Abort(better) }
	openAll(t, networks, 0)
	dialAs(t, networks[0], 0, 1, data).Close()
	if err := untilErr(t, n); err != better {
		t.Error(err)
	}
}

// A rank without connections can still abort all ranks that have a connection to rank 0.
func TestAbortWithoutAnyConnection(t *testing.T) {
	networks := world(t, 3, nil)
	lanes := openAll(t, networks, 0)
	post(lanes[1], []byte("hello"))
	eventually(t, func() bool { return connections(networks[0]) == 1 })
	networks[2].Abort(errors.New("no memory"))
	for _, n := range networks[:2] {
		if err := untilErr(t, n); err.Error() != "no memory (reported by rank 2)" {
			t.Errorf("rank %d: %v", n.cfg.Rank, err)
		}
	}
}

// The abort comes while the first connection is being made.
func TestAbortWhileConnecting(t *testing.T) {
	for range 20 {
		networks := world(t, 2, nil)
		lanes := openAll(t, networks, 0)
		post(lanes[1], []byte("hello"))
		networks[1].Abort(errors.New("no memory"))
		if err := untilErr(t, networks[0]); err.Error() != "no memory (reported by rank 1)" {
			t.Error(err)
		}
		closeAll(networks)
	}
}

// Rank 0 aborts and closes before it has any connection.
func TestAbortOfTheCoordinatorReachesStrangers(t *testing.T) {
	networks := world(t, 3, nil)
	openAll(t, networks, 0)
	networks[0].Abort(errors.New("no memory"))
	networks[0].Close()
	for _, r := range []int{1, 2} {
		if err := untilErr(t, networks[r]); err.Error() != "no memory (reported by rank 0)" {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A peer that does not read and a stranger that does not answer together delay the end of an abort no longer than one
// of them.
func TestAnAbortIsToldForAShortTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	shortest := time.Hour // the shortest of several, because other programs may take the cores
	for i := 0; i < 3 && shortest > abortLinger*3/2; i++ {
		networks := world(t, 3, func(rank int, c *Config) {
			if addrs := c.Addrs; rank == 0 {
				c.Addrs = func(rank int) []string {
					if rank == 2 {
						return []string{silent.Addr().String()}
					}
					return addrs(rank)
				}
			}
		})
		n := networks[0]
		if _, err := n.OpenLane(0, 0, []int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		stuck, _, err := networks[1].dialer.Try(t.Context(), 0, 0,
			hello{generation: 7, from: 1, to: 0, size: 3, cards: 8, streams: 1}.encode())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return connections(n) == 1 })
		for c := range n.conns {
			for full := 0; full < 5; full++ { // the kernel sometimes finds more room
				for _, size := range []int{1 << 20, 64} {
					c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
					if wrote, _ := c.Write(make([]byte, size)); wrote > 0 {
						full = -1
					}
				}
			}
		}
		began := time.Now()
		n.Abort(errors.New("no memory"))
		n.farewells.Wait()
		shortest = min(shortest, time.Since(began))
		stuck.Close()
		closeAll(networks)
	}
	if shortest > abortLinger*3/2 {
		t.Errorf("an abort is told for %v, want %v", shortest, abortLinger)
	}
}

// A rank that connects to one that has aborted already learns the cause.
func TestConnectingAfterTheAbort(t *testing.T) {
	networks := world(t, 3, nil)
	networks[0].Abort(errors.New("no memory")) // it has no lane, and tells nobody
	for _, r := range []int{1, 2} {
		l, err := networks[r].OpenLane(0, 0, []int{0, 1, 2})
		if err != nil {
			t.Fatal(err)
		}
		post(l, []byte("hello"))
		if err := untilErr(t, networks[r]); err.Error() != "no memory (reported by rank 0)" {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestTheSenderNoticesToo(t *testing.T) {
	// The killed rank would report its own view to the other, if it had the time.
	graces := []time.Duration{10 * time.Millisecond, time.Hour}
	networks := world(t, 2, func(rank int, c *Config) { c.Grace = graces[rank] })
	lanes := openAll(t, networks, 0)
	lanes[0].Comm.Send(1, nil)
	eventually(t, func() bool { return connections(networks[1]) == 1 })
	crash(networks[1])
	if err := untilErr(t, networks[0]); !strings.Contains(err.Error(), "connection to rank 1") {
		t.Error(err)
	}
}

func TestBrokenProtocolAborts(t *testing.T) {
	for name, test := range map[string]struct {
		stream stream
		bytes  []byte
		want   string
	}{
		"unknown kind":       {control, rawMessage(9, 0, 0, ""), "unknown kind"},
		"wrong sequence":     {control, rawMessage(messageBoard, 3, 1, "x"), "message 3 came where 0 was due"},
		"data on control":    {control, rawMessage(messageData, 0, 1, "x"), "kind 1"},
		"board on data":      {data, rawMessage(messageBoard, 0, 1, "x"), "kind 2"},
		"huge frame":         {control, rawMessage(messageBoard, 0, 1<<62, ""), "4611686018427387904 bytes"},
		"bad frame":          {control, rawMessage(messageBoard, 0, 1, "\xff"), "lane 0"},
		"huge abort":         {control, rawMessage(messageAbort, 0, 1<<62, ""), "abort message of"},
		"short abort":        {data, rawMessage(messageAbort, 0, 1, "x"), "abort message of"},
		"goodbye with bytes": {data, rawMessage(messageGoodbye, 0, 1, "x"), "goodbye of 1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			networks := world(t, 2, nil)
			lanes := openAll(t, networks, 0)
			dialAs(t, networks[0], 0, 1, test.stream).Write(test.bytes)
			lanes[1].Comm.Recv(0, make([]byte, 100)) // otherwise nobody reads data
			until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) || networks[1].Err() != nil })
			if err := networks[1].Err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// The rank that leaves with a lane open leaves the others waiting.
func TestLeavingAnOpenLaneAborts(t *testing.T) {
	for _, leaver := range []int{0, 1} {
		networks := world(t, 2, func(_ int, c *Config) { c.Grace = 10 * time.Millisecond })
		lanes := openAll(t, networks, 0)
		lanes[0].Comm.Send(1, nil)
		lanes[1].Comm.Recv(0, nil)
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		networks[leaver].Close()
		if err := untilErr(t, networks[1-leaver]); !strings.Contains(err.Error(), "while lane 0 was open") {
			t.Error(err)
		}
	}
}

func TestDataForOneWhoHasLeft(t *testing.T) {
	networks := world(t, 2, func(_ int, c *Config) { c.Grace = time.Hour })
	lanes := openAll(t, networks, 0)
	lanes[0].Comm.Send(1, nil)
	eventually(t, func() bool { return connections(networks[1]) == 1 })
	networks[1].Close()
	eventually(t, networks[0].peers[1].left.Load)
	lanes[0].Comm.Send(1, make([]byte, 1<<20))
	if err := untilErr(t, networks[0]); !strings.Contains(err.Error(), "rank 1 has closed its network") {
		t.Error(err)
	}
}

func TestDataFromOneWhoHasLeft(t *testing.T) {
	networks := world(t, 2, func(_ int, c *Config) { c.Grace = time.Hour })
	lanes := openAll(t, networks, 0)
	lanes[0].Comm.Send(1, []byte("abc"))
	until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
	networks[0].Close()
	// A message sent before the goodbye still arrives, though nobody waited for it.
	p := make([]byte, 3)
	lanes[1].Comm.Recv(0, p)
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if string(p) != "abc" || networks[1].Err() != nil {
		t.Errorf("%q, %v", p, networks[1].Err())
	}
	lanes[1].Comm.Recv(0, p)
	if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "rank 0 has closed its network") {
		t.Error(err)
	}
}

// After Close nothing touches a posted buffer, and the goroutines are gone (TestMain).
func TestCloseWithPostedBuffers(t *testing.T) {
	for _, abort := range []bool{false, true} {
		networks := world(t, 2, nil)
		lanes := openAll(t, networks, 0)
		p := make([]byte, 1<<20)
		c := dialAs(t, networks[0], 0, 1, data)
		lanes[1].Comm.Recv(0, p)
		c.Write(rawMessage(messageData, 0, uint64(len(p)), "beginning"))
		lanes[1].Comm.Send(0, make([]byte, 64<<20))
		eventually(t, func() bool { return connections(networks[1]) == 2 })
		if abort {
			networks[1].Abort(errors.New("enough"))
		}
		start := time.Now()
		networks[1].Close()
		networks[1].Close() // allowed
		if d := time.Since(start); d > patience/2 {
			t.Errorf("abort %v: closing took %v", abort, d)
		}
		for i := range p {
			p[i] = 0xee // the race detector sees any other writer
		}
		c.Close()
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	networks := world(t, 2, func(r int, c *Config) {
		if r == 1 {
			c.Key = []byte("another secret")
		}
	})
	lanes := openAll(t, networks, 0)
	post(lanes[1], []byte("let me in"))
	err := untilErr(t, networks[1])
	if !errors.Is(err, auth.ErrProof) || !strings.Contains(err.Error(), "rank 1 cannot connect to rank 0") {
		t.Error(err)
	}
	if err := networks[0].Err(); err != nil {
		t.Errorf("the stranger aborted rank 0: %v", err)
	}
	lanes[0].Poller.Poll()
	lanes[0].Coordination.TakeRequests(func([]int, []byte) { t.Error("a stranger's request came through") })
}

func TestMismatchesAreRefused(t *testing.T) {
	networks := world(t, 3, nil)
	n := networks[0]
	if _, err := n.OpenLane(1, 0, []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	good := hello{generation: 7, lane: 1, from: 1, to: 0, size: 3, cards: 8, streams: 1}
	dial := func(h hello) (*link.Conn, error) {
		c, _, err := networks[1].dialer.Try(t.Context(), 0, 0, h.encode())
		return c, err
	}
	first, err := dial(good)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	eventually(t, func() bool { return connections(n) == 1 })
	for want, change := range map[string]func(h *hello){
		"generation 6":      func(h *hello) { h.generation = 6 },
		"3 ranks with 9":    func(h *hello) { h.cards = 9 },
		"4 ranks with 8":    func(h *hello) { h.size = 4 },
		"looks for rank 2":  func(h *hello) { h.to = 2 },
		"rank 0 to rank 0":  func(h *hello) { h.from = 0 },
		"rank 3 to rank 0":  func(h *hello) { h.from = 3 },
		"stream 2":          func(h *hello) { h.stream = 2 },
		"2 data streams":    func(h *hello) { h.streams = 2 },
		"5 bytes travel":    func(h *hello) { h.early = 5 },
		"not in lane 1":     func(h *hello) { h.from = 2 },
		"connected already": func(h *hello) {},
	} {
		h := good
		change(&h)
		c, err := dial(h)
		if !errors.Is(err, link.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			c.Close()
		}
	}
}

// Connections that never prove anything must not keep the ranks from communicating.
func TestStrangersDoNotDisturb(t *testing.T) {
	networks := world(t, 2, nil)
	lanes := openAll(t, networks, 0)
	addr := networks[0].cfg.Listener.Addr().String()
	var strangers []net.Conn
	for i := range maxUnproven(2) + 20 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"+strings.Repeat("x", 5000))
		case 1:
			io.WriteString(c, "gorovod\x01") // and then nothing more
		}
		strangers = append(strangers, c)
	}
	post(lanes[1], []byte("a rank"))
	got := ""
	until(t, networks[0], func() bool {
		lanes[0].Poller.Poll()
		lanes[0].Coordination.TakeRequests(func(_ []int, p []byte) { got = string(p) })
		return got != ""
	})
	if have, limit := networks[0].acceptor.Unproven(), maxUnproven(2); have > limit {
		t.Errorf("%d unproven connections, the limit is %d", have, limit)
	}
	for _, n := range networks {
		if n.Err() != nil {
			t.Error(n.Err())
		}
	}
	for _, c := range strangers {
		c.Close()
	}
}

func TestUnreachableRank(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	networks := world(t, 2, func(r int, c *Config) {
		c.Timeout = 200 * time.Millisecond
		c.Addrs = func(int) []string { return []string{dead.Addr().String()} }
	})
	openAll(t, networks, 0)[0].Comm.Send(1, nil)
	err = untilErr(t, networks[0])
	if !strings.Contains(err.Error(), "rank 0 cannot connect to rank 1") || !strings.Contains(err.Error(),
		dead.Addr().String()) {
		t.Error(err)
	}
}

// A rank with several addresses is found at the one that works, though another one belongs to somebody else, and one to
// nobody.
func TestTheRightAddressIsFound(t *testing.T) {
	var listeners []string
	networks := world(t, 3, func(r int, c *Config) {
		listeners = append(listeners, c.Listener.Addr().String())
		c.Addrs = func(rank int) []string {
			return []string{"127.0.0.1:1", listeners[2], listeners[rank]}
		}
	})
	lanes := openAll(t, networks, 0)
	for range 2 {
		lanes[0].Comm.Send(1, []byte("x"))
		lanes[1].Comm.Recv(0, make([]byte, 1))
		until(t, networks[1], func() bool {
			if networks[0].Err() != nil {
				t.Fatal(networks[0].Err())
			}
			return lanes[1].Comm.Received(0)
		})
		until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
	}
	if route := networks[0].peers[1].route.Load(); route != 2 {
		t.Errorf("remembers address %d", route)
	}
}
