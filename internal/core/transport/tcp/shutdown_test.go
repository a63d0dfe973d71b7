package tcp

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// TestShutdownIsSilent runs steps as an engine does (agree on the board, then
// pass data round a ring), lets a random rank close the lane at a random moment,
// and has every rank leave as soon as it has read the log to its end. No rank may
// see an error, and all must have done the same steps.
func TestShutdownIsSilent(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		shutdown(t, seed, 20*time.Millisecond, false)
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
	}
}

func shutdown(t *testing.T, seed uint64, grace time.Duration, tls bool) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	size := 2 + rnd.IntN(3)
	networks := world(t, size, func(_ int, c *Config) { c.Grace, c.TLS = grace, certtest.Own(tls) })
	lanes := openAll(t, networks, 0)
	card, gen, _ := lanes[0].Coordination.Acquire()
	closer, last := rnd.IntN(size), rnd.IntN(30)
	bytesEach := rnd.IntN(300_000)
	steps := make([]int, size)
	var g sync.WaitGroup
	for me, n := range networks {
		g.Go(func() {
			r := ringRank{t: t, n: n, lane: lanes[me], bytes: bytesEach}
			for n.Err() == nil {
				if me == closer && steps[me] == last {
					r.lane.Board.Close()
				}
				mark(r.lane, card, gen)
				if !r.step(steps[me]) {
					break
				}
				steps[me]++
			}
			if err := n.Err(); err != nil {
				t.Errorf("rank %d after %d steps: %v", me, steps[me], err)
			}
			n.Close()
			if err := n.Err(); err != nil {
				t.Errorf("rank %d has an error after Close: %v", me, err)
			}
		})
	}
	g.Wait()
	for me := range steps {
		if steps[me] != steps[closer] {
			t.Errorf("steps %v", steps)
			break
		}
	}
}

// The coordinator leaves before it has any connection. The others must hear that the log is closed, and not wait for
// ever. The default grace gives both messages, the log's end and the goodbye, time to arrive.
func TestTheLogsEndIsHeardByStrangers(t *testing.T) {
	networks := world(t, 3, nil)
	lanes := openAll(t, networks, 0)
	post(lanes[1], []byte("hello"))
	lanes[0].Board.Close()
	nextBatch(lanes[0])
	if !lanes[0].Board.Closed() {
		t.Fatal("not closed")
	}
	networks[0].Close()
	for _, m := range []int{1, 2} {
		until(t, networks[m], func() bool {
			nextBatch(lanes[m])
			return lanes[m].Board.Closed() || networks[m].Err() != nil
		})
		if err := networks[m].Err(); err != nil {
			t.Errorf("rank %d: %v", m, err)
		}
	}
}

type ringRank struct {
	t     *testing.T
	n     *Network
	lane  *transport.Lane
	bytes int
}

// step executes one batch; it returns false at the end of the log.
func (r *ringRank) step(k int) bool {
	b, c := r.lane.Board, r.lane.Comm
	closed := false
	until(r.t, r.n, func() bool {
		records := nextBatch(r.lane)
		closed = records == nil && b.Closed()
		return records != nil || closed || r.n.Err() != nil
	})
	if closed || r.n.Err() != nil {
		return false
	}
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	landing := make([]byte, r.bytes)
	c.Recv(prev, landing)
	c.Send(next, bytes.Repeat([]byte{byte(k + c.Rank())}, r.bytes))
	until(r.t, r.n, func() bool {
		return c.Sent(next) && c.Received(prev) || r.n.Err() != nil
	})
	if r.n.Err() == nil && r.bytes > 0 && !bytes.Equal(landing, bytes.Repeat([]byte{byte(k + prev)}, r.bytes)) {
		r.t.Errorf("rank %d: step %d: wrong data", c.Rank(), k)
	}
	return r.n.Err() == nil
}

// TestAnyDeathEndsEverybody kills a random rank's connections at a random step: all others must get an error, and none
// may hang.
func TestAnyDeathEndsEverybody(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { death(t, seed) }) {
			return
		}
	}
}

func death(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	size := 2 + rnd.IntN(3)
	networks := world(t, size, func(_ int, c *Config) { c.Grace = 20 * time.Millisecond })
	lanes := openAll(t, networks, 0)
	card, gen, _ := lanes[0].Coordination.Acquire()
	victim, last := rnd.IntN(size), 1+rnd.IntN(20)
	bytesEach := rnd.IntN(300_000)
	var g sync.WaitGroup
	for me, n := range networks {
		g.Go(func() {
			r := ringRank{t: t, n: n, lane: lanes[me], bytes: bytesEach}
			for k := 0; n.Err() == nil; k++ {
				if me == victim && k == last {
					crash(n)
					return
				}
				mark(r.lane, card, gen)
				r.step(k)
			}
		})
	}
	g.Wait()
	for me, n := range networks {
		if me != victim && n.Err() == nil {
			t.Errorf("rank %d has no error", me)
		}
	}
}

// crash makes a rank's connections end as if its process had been killed. The rank itself does not notice.
func crash(n *Network) {
	for i := range n.peers {
		n.peers[i].lost.Store(true)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
}

// A rank hears that it is welcome just before the other rank leaves, and begins to use the connection just after. It
// gets a goodbye, and must not take the other rank for dead.
func TestWelcomedTooLate(t *testing.T) {
	networks := world(t, 2, nil)
	openAll(t, networks, 0)
	raw, err := net.Dial("tcp", networks[1].cfg.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(patience))
	if err := auth.Initiate(raw, networks[0].cfg.Key, networks[0].hello(networks[0].lanes[0], 1,
		data).encode()); err != nil {
		t.Fatal(err)
	}
	verdict := make([]byte, 1)
	if _, err := io.ReadFull(raw, verdict); err != nil || verdict[0] != 0 {
		t.Fatalf("verdict %v, %v", verdict, err)
	}
	var closing sync.WaitGroup
	closing.Go(func() { networks[1].Close() })
	eventually(t, func() bool {
		c, err := net.Dial("tcp", networks[1].cfg.Listener.Addr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	begin := []byte{0x42}
	if _, err := raw.Write(slices.Concat(begin, rawMessage(messageData, 0, 4, "data"))); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, headerSize)
	if _, err := io.ReadFull(raw, word); err != nil {
		t.Fatal(err)
	}
	if h, err := parseHeader(word); err != nil || h.kind != messageGoodbye {
		t.Errorf("told %+v, %v", h, err)
	}
	raw.Close()
	closing.Wait()
}
