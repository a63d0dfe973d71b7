package tcp

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

func TestMessagesArriveUnderTLS(t *testing.T) { exchangeAll(t, 2, true) }

// When a rank leaves, the pumps of TLS lose no goodbye.
func TestShutdownIsSilentUnderTLS(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		shutdown(t, seed, 500*time.Millisecond, true)
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
	}
}

// A connection that breaks under TLS looks at the other end like any other broken one.
func TestDeathUnderTLS(t *testing.T) {
	for name, end := range map[string]func(c *conn){
		"end of file": func(c *conn) { c.CloseWrite() },
		"closed":      func(c *conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			networks := world(t, 2, func(_ int, c *Config) { c.Grace, c.TLS = 10*time.Millisecond, certtest.Own(true) })
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
		})
	}
}

// A rank that uses no TLS towards one that does gets no further than the proof.
func TestPlainMeetsTLS(t *testing.T) {
	networks := world(t, 2, func(r int, c *Config) { c.TLS, c.Timeout = certtest.Own(r == 0), 300*time.Millisecond })
	lanes := openAll(t, networks, 0)
	lanes[1].Comm.Send(0, []byte("x"))
	if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "cannot connect to rank 0") {
		t.Error(err)
	}
}

// Two ranks with certificates of two CAs do not connect; the one that dials says why, without a second try.
func TestTwoCAs(t *testing.T) {
	networks := world(t, 2, func(r int, c *Config) {
		own := certtest.NewCA(t).Issue(t.TempDir(), time.Now().Add(time.Hour))
		c.TLS, c.Timeout = &own, time.Hour
	})
	lanes := openAll(t, networks, 0)
	lanes[1].Comm.Send(0, []byte("x"))
	if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "cannot connect to rank 0") ||
		!strings.Contains(err.Error(), "certificate refused") {
		t.Error(err)
	}
}

// The data streams to a rank are spread over its addresses if these are equally good. If one does not work, its streams
// use another.
func TestStreamsTakeSeveralWays(t *testing.T) {
	const streams = 4
	at := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	for _, broken := range []bool{false, true} {
		var addrs [2][]string
		networks := world(t, 2, func(r int, c *Config) {
			c.Listener.Close()
			l, err := link.Listen(at...)
			if err != nil {
				t.Fatal(err)
			}
			c.Listener, c.Streams = l, streams
			for i, a := range at {
				port := uint16(l.Addr().(*net.TCPAddr).Port)
				if broken && i == 1 {
					a = netip.MustParseAddr("127.0.0.9") // nobody listens there
				}
				addrs[r] = append(addrs[r], netip.AddrPortFrom(a, port).String())
			}
			c.Addrs = func(rank int) []string { return addrs[rank] }
			c.Paths = func(int) int { return len(at) }
		})
		lanes := openAll(t, networks, 0)
		p := pattern(streams*minPart, 1)
		got := make([]byte, len(p))
		lanes[1].Comm.Recv(0, got)
		lanes[0].Comm.Send(1, p)
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
		used := map[string]int{}
		networks[1].mu.Lock()
		for c := range networks[1].conns {
			if c.stream >= data {
				used[c.localHost()]++
			}
		}
		networks[1].mu.Unlock()
		if !broken && used["127.0.0.1"] != streams/2 {
			t.Errorf("the streams are spread unevenly: %v", used)
		}
		if want := map[bool]int{false: 2, true: 1}[broken]; len(used) != want ||
			used["127.0.0.1"]+used["127.0.0.2"] != streams {
			t.Errorf("broken %v: the streams have come to %v", broken, used)
		}
		closeAll(networks)
	}
}

// The streams stay evenly spread if another address turns out to work while they are being made.
func TestStreamsTakeWaysInTurn(t *testing.T) {
	const paths, streams = 2, 4
	for changes := range streams {
		var p peer
		var used [paths]int
		for k := range streams {
			if k == changes {
				p.route.Store(1)
			}
			used[p.start(data+stream(k), paths)]++
		}
		if used != [paths]int{2, 2} {
			t.Errorf("the way changes before stream %d: %v", changes, used)
		}
		if got := p.start(control, paths); got != 1 {
			t.Errorf("the control stream begins with %d, not with what worked last", got)
		}
	}
}

// localHost is the address at this end.
func (c *conn) localHost() string {
	l, err := c.hold()
	if err != nil {
		return err.Error()
	}
	return l.LocalAddr().(*net.TCPAddr).IP.String()
}

// A proof holds only for the connection's own ranks: rank 2 refuses rank 0's hello for rank 1.
func TestAHelloOpensOneDoor(t *testing.T) {
	networks := world(t, 3, nil)
	openAll(t, networks, 0)
	d := &link.Dialer{Key: networks[0].cfg.Key, Track: func(int, bool) {},
		Addrs: func(int) []string { return networks[0].cfg.Addrs(2) }}
	h := networks[0].hello(networks[0].lanes[0], 1, data)
	if _, _, err := d.Try(t.Context(), 1, 0, h.encode()); !errors.Is(err, link.ErrRefused) ||
		!strings.Contains(err.Error(), "looks for rank 1, here is rank 2") {
		t.Error(err)
	}
	d.Key = []byte("another secret")
	if _, _, err := d.Try(t.Context(), 2, 0, h.encode()); !errors.Is(err, auth.ErrProof) {
		t.Error(err)
	}
	h.generation++
	d.Key = networks[0].cfg.Key
	if _, _, err := d.Try(t.Context(), 2, 0, h.encode()); !errors.Is(err, link.ErrRefused) ||
		!strings.Contains(err.Error(), "generation") {
		t.Error(err)
	}
}
