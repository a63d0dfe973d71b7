package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds every wait of a test that works.
const patience = 20 * time.Second

func world(t testing.TB, size int, change func(rank int, c *Config)) []*Endpoint {
	t.Helper()
	listeners := make([]net.Listener, size)
	for r := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[r] = l
	}
	endpoints := make([]*Endpoint, size)
	for r := range endpoints {
		c := Config{Rank: r, Size: size, Key: []byte("the job's secret"), Generation: 7, Listener: listeners[r],
			Addrs: func(rank int) []string { return []string{listeners[rank].Addr().String()} }}
		if change != nil {
			change(r, &c)
		}
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		endpoints[r] = m
	}
	t.Cleanup(func() { closeAll(endpoints) })
	return endpoints
}

func closeAll(endpoints []*Endpoint) {
	var g sync.WaitGroup
	for _, m := range endpoints {
		g.Go(func() { m.Close() })
	}
	g.Wait()
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

func mustSend(t testing.TB, m *Endpoint, to int, tag uint32, p []byte) {
	t.Helper()
	if err := m.Send(limited(t), to, tag, 0, p); err != nil {
		t.Error(err)
	}
}

func mustRecv(t testing.TB, m *Endpoint, from int, tag uint32, want []byte) {
	t.Helper()
	p := make([]byte, len(want)+3)
	n, _, err := m.Recv(limited(t), from, tag, p)
	if err != nil || !bytes.Equal(p[:n], want) {
		t.Errorf("rank %d, tag %d from %d: %d bytes, %v, want %d bytes", m.cfg.Rank, tag, from, n, err, len(want))
	}
}

// eventually polls until done returns true.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
}

// setBuffer fixes the size of a buffer of a socket.
func setBuffer(t *testing.T, c any, which int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(
				int(fd), syscall.SOL_SOCKET, which, 256<<10)
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waiting reports whether a Recv with this tag waits for the sender.
func (b *box) waitingFor(tag uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[tag]) > 0
}

func (b *box) isFilling(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.stage == filling
}

func (b *box) keptMessages(tag uint32) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.kept[tag])
}

// All pairs, each rank with itself, too, exchange messages of all sizes with two tags. The receivers take the tags in
// the other order as far as memory allows.
func TestMessagesArriveWholeAndInOrder(t *testing.T) {
	sizes := []int{0, 1, 15, 16, 17, 4 << 10, 70_000, 0, 1 << 20, 8 << 20, 3}
	endpoints := world(t, 3, nil)
	message := func(from, to, k int) []byte { return pattern(sizes[k], byte(from+3*to+9*k)) }
	var g sync.WaitGroup
	for me, m := range endpoints {
		for peer := range endpoints {
			g.Go(func() {
				for k := range sizes {
					mustSend(t, m, peer, 1, message(me, peer, k))
					mustSend(t, m, peer, 2, fmt.Appendf(nil, "%d", k))
				}
			})
			g.Go(func() {
				for k := range sizes {
					if sizes[k] < 1<<20 {
						mustRecv(t, m, peer, 2, fmt.Appendf(nil, "%d", k))
						mustRecv(t, m, peer, 1, message(peer, me, k))
					} else {
						mustRecv(t, m, peer, 1, message(peer, me, k))
						mustRecv(t, m, peer, 2, fmt.Appendf(nil, "%d", k))
					}
				}
			})
		}
	}
	g.Wait()
}

// With random sends and receives, the messages of each tag arrive in the order in which they were sent.
func TestTagsAreIndependent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const tags, rounds = 5, 60
	// messages generates the messages of a tag one by one, the same for sender and receiver.
	messages := func(tag uint32, each func(message []byte)) {
		rnd := rand.New(rand.NewPCG(seed, uint64(tag)))
		for k := range rounds {
			each(pattern(rnd.IntN(20_000), byte(k)+byte(tag)))
		}
	}
	var g sync.WaitGroup
	endpoints := world(t, 2, nil)
	for _, m := range endpoints {
		for tag := range uint32(tags) {
			for peer := range endpoints { // itself, too
				g.Go(func() { messages(tag, func(p []byte) { mustSend(t, m, peer, tag, p) }) })
				g.Go(func() { messages(tag, func(p []byte) { mustRecv(t, m, peer, tag, p) }) })
			}
		}
	}
	g.Wait()

}

func TestReceivesOfATagAreServedInOrder(t *testing.T) {
	endpoints := world(t, 2, nil)
	for from := range 2 {
		var g sync.WaitGroup
		b := &endpoints[0].boxes[from]
		for k := range 3 {
			g.Go(func() { mustRecv(t, endpoints[0], from, 5, []byte{byte(k)}) })
			eventually(t, func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.waiting[5]) == k+1
			})
		}
		for k := range 3 {
			mustSend(t, endpoints[from], 0, 5, []byte{byte(k)})
		}
		g.Wait()
	}
}

// The error names both lengths, and the next Recv gets the message: one that was kept, one that met a waiting Recv, and
// one too large to be kept.
func TestTooLongAMessage(t *testing.T) {
	endpoints := world(t, 2, nil)
	for _, from := range []int{0, 1} {
		for _, size := range []int{100, MaxKept + 1} {
			for _, waits := range []bool{false, true} {
				if from == 0 && size > MaxKept && !waits {
					continue // Send would wait for a Recv
				}
				p, b := pattern(size, 1), &endpoints[0].boxes[from]
				var g sync.WaitGroup
				send := func() { g.Go(func() { mustSend(t, endpoints[from], 0, 3, p) }) }
				if !waits {
					send()
					if size < MaxKept {
						eventually(t, func() bool { return b.keptMessages(3) == 1 })
					}
				} else {
					g.Go(func() {
						eventually(t, func() bool { return b.waitingFor(3) })
						send()
					})
				}
				_, _, err := endpoints[0].Recv(limited(t), from, 3, make([]byte, 99))
				want := fmt.Sprintf("receive with tag 3 from rank %d: the message is longer than the buffer: it has "+
					"%d bytes, the buffer 99", from, size)
				if !errors.Is(err, ErrTooLong) || err.Error() != want {
					t.Errorf("%v, want %q", err, want)
				}
				mustRecv(t, endpoints[0], from, 3, p)
				g.Wait()
			}
		}
	}
}

// A receiver that does not receive holds the sender back, keeps no more than MaxKept, and gets everything in the end.
func TestBackPressure(t *testing.T) {
	for _, size := range []int{1000, 100_000, MaxKept - messageCost} {
		for _, from := range []int{0, 1} {
			endpoints := world(t, 2, nil)
			var sent atomic.Int64
			const limit = 500_000
			ctx, cancel := context.WithCancel(context.Background())
			var g sync.WaitGroup
			p := pattern(size, 1)
			g.Go(func() {
				for k := 0; k < limit && endpoints[from].Send(ctx, 0, 1, 0, p) == nil; k++ {
					sent.Add(1)
				}
			})
			last := int64(-1)
			eventually(t, func() bool { // the sender stands still
				time.Sleep(50 * time.Millisecond)
				now := sent.Load()
				still := now == last
				last = now
				return still && now > 0
			})
			b := &endpoints[0].boxes[from]
			b.mu.Lock()
			if b.bytes > MaxKept {
				t.Errorf("size %d: %d bytes are kept", size, b.bytes)
			}
			b.mu.Unlock()
			if last == limit {
				t.Fatalf("messages of %d bytes are sent without limit", size)
			}
			for range last + 1 { // one more than has been sent, so the waiting one arrives, too
				mustRecv(t, endpoints[0], from, 1, p)
			}
			cancel()
			g.Wait()
			closeAll(endpoints)
		}
	}
}

// A Recv that is cancelled in the middle of a message loses nothing of it, and no longer touches its buffer.
func TestCancelledRecvLosesNothing(t *testing.T) {
	endpoints := world(t, 2, nil)
	m, b := endpoints[0], &endpoints[0].boxes[1]
	const size = 8 << 20
	whole := pattern(size, 1)
	mustSend(t, endpoints[1], 0, 9, nil) // makes the connection
	mustRecv(t, m, 1, 9, nil)
	raw := endpoints[1].outs[0].conn
	for _, cut := range []int{0, 1, 100_000} {
		ctx, cancel := context.WithCancel(context.Background())
		p := make([]byte, size)
		result := make(chan error)
		go func() {
			_, _, err := m.Recv(ctx, 1, 9, p)
			result <- err
		}()
		eventually(t, func() bool { return b.waitingFor(9) })
		b.mu.Lock()
		w := b.waiting[9][0]
		b.mu.Unlock()
		var head [headerSize]byte
		putHeader(head[:], kindMessage, 9, 0, size)
		raw.Write(append(head[:], whole[:cut]...))
		eventually(t, func() bool { return b.isFilling(w) })
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for i := range p {
			p[i] = 0xee // the race detector sees any other writer
		}
		go raw.Write(whole[cut:])
		mustRecv(t, m, 1, 9, whole)
	}
	mustSend(t, endpoints[1], 0, 9, []byte("next"))
	mustRecv(t, m, 1, 9, []byte("next"))
}

// A Send that is cancelled in the middle gives its buffer back, and the message arrives, so that later ones do, too.
func TestCancelledSendDoesNotBreakTheStream(t *testing.T) {
	endpoints := world(t, 2, nil)
	// Once the connection exists, a message is under way at once.
	var first sync.WaitGroup
	first.Go(func() { mustSend(t, endpoints[1], 0, 1, []byte("first")) })
	mustRecv(t, endpoints[0], 1, 1, []byte("first"))
	first.Wait()
	// Fix small buffers at both ends, which the system would let grow.
	b := &endpoints[0].boxes[1]
	b.mu.Lock()
	in := b.conn
	b.mu.Unlock()
	setBuffer(t, in.Stream, syscall.SO_RCVBUF)
	setBuffer(t, endpoints[1].outs[0].conn.Stream, syscall.SO_SNDBUF)
	for range 3 {
		const size = 24 << 20 // more than the sockets and the box hold
		p := pattern(size, 1)
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error)
		go func() { result <- endpoints[1].Send(ctx, 0, 1, 0, p) }()
		eventually(t, func() bool { // its header has arrived, and the box reads no further
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.stuck[1] > 0
		})
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		clear(p)
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if err := endpoints[1].Send(short, 0, 1, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a send behind an unfinished one: %v", err)
		}
		cancel()
		var g sync.WaitGroup
		g.Go(func() { mustSend(t, endpoints[1], 0, 1, []byte("next")) })
		mustRecv(t, endpoints[0], 1, 1, pattern(size, 1))
		mustRecv(t, endpoints[0], 1, 1, []byte("next"))
		g.Wait()
	}
}

func TestCancelledBeforeAnythingHappens(t *testing.T) {
	endpoints := world(t, 2, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	for from := range 2 {
		if _, _, err := endpoints[0].Recv(ctx, from, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if endpoints[0].boxes[from].waitingFor(1) {
			t.Error("it waits still")
		}
		if err := endpoints[0].Send(ctx, from, 1, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// blocked starts calls that block in every possible way, and returns their results.
func blocked(t *testing.T, endpoints []*Endpoint) chan error {
	results := make(chan error, 9)
	m, big := endpoints[0], make([]byte, 64<<20)
	call := func(f func() error) {
		go func() { results <- f() }()
	}
	ctx := context.Background()
	call(func() error { _, _, err := m.Recv(ctx, 0, 1, nil); return err })
	call(func() error { _, _, err := m.Recv(ctx, 1, 1, nil); return err })
	call(func() error { return m.Send(ctx, 0, 2, 0, big) })
	call(func() error { return m.Send(ctx, 1, 2, 0, big) })
	eventually(t, func() bool { return len(m.outs[0].turn) == 1 && len(m.outs[1].turn) == 1 })
	call(func() error { return m.Send(ctx, 1, 2, 0, nil) }) // behind the one before
	eventually(t, func() bool {
		return m.boxes[0].waitingFor(1) && m.boxes[1].waitingFor(1) && endpoints[1].boxes[0].connected()
	})
	// And a Recv in the middle of a message.
	var head [headerSize]byte
	putHeader(head[:], kindMessage, 3, 0, 100)
	mustSend(t, endpoints[1], 0, 9, nil)
	p := make([]byte, 100)
	call(func() error { _, _, err := m.Recv(ctx, 1, 3, p); return err })
	eventually(t, func() bool { return m.boxes[1].waitingFor(3) })
	endpoints[1].outs[0].conn.Write(append(head[:], "beginning"...))
	eventually(t, func() bool { return !m.boxes[1].waitingFor(3) })
	return results
}

const blockedCalls = 6

func TestAbortWakesEverybody(t *testing.T) {
	cause := errors.New("rank 3 has died")
	var worldErr atomic.Pointer[error]
	for name, abort := range map[string]func(m *Endpoint){
		"Abort": func(m *Endpoint) { m.Abort(cause) },
		"Err":   func(*Endpoint) { worldErr.Store(&cause) },
	} {
		t.Run(name, func(t *testing.T) {
			worldErr.Store(nil)
			endpoints := world(t, 2, func(r int, c *Config) {
				if r == 0 {
					c.Err = func() error {
						if p := worldErr.Load(); p != nil {
							return *p
						}
						return nil
					}
				}
			})
			results := blocked(t, endpoints)
			abort(endpoints[0])
			for range blockedCalls {
				select {
				case err := <-results:
					if err != cause {
						t.Errorf("%v, want %v", err, cause)
					}
				case <-time.After(patience):
					t.Fatal("a call hangs")
				}
			}
			endpoints[0].Abort(errors.New("later"))
			for rank := range 2 {
				if err := endpoints[0].Send(context.Background(), rank, 1, 0, nil); err != cause {
					t.Error(err)
				}
				if _, _, err := endpoints[0].Recv(context.Background(), rank, 1, nil); err != cause {
					t.Error(err)
				}
			}
		})
	}
}

func TestCloseWakesEverybody(t *testing.T) {
	endpoints := world(t, 2, nil)
	results := blocked(t, endpoints)
	start := time.Now()
	endpoints[0].Close()
	endpoints[0].Close() // allowed
	for range blockedCalls {
		if err := <-results; err != ErrClosed {
			t.Errorf("%v, want %v", err, ErrClosed)
		}
	}
	if d := time.Since(start); d > patience/2 {
		t.Errorf("closing took %v", d)
	}
	if err := endpoints[0].Send(context.Background(), 1, 1, 0, nil); err != ErrClosed {
		t.Error(err)
	}
}

// Messages sent before Close arrive. After them comes an error that names the rank.
func TestClosingInGoodOrder(t *testing.T) {
	endpoints := world(t, 2, nil)
	p := pattern(100_000, 1)
	mustSend(t, endpoints[1], 0, 1, p)
	mustSend(t, endpoints[1], 0, 1, p)
	endpoints[1].Close()
	mustRecv(t, endpoints[0], 1, 1, p)
	mustRecv(t, endpoints[0], 1, 1, p)
	for range 2 {
		_, _, err := endpoints[0].Recv(limited(t), 1, 1, p)
		if err == nil || err.Error() != "receive with tag 1 from rank 1: rank 1 has closed its endpoint" {
			t.Error(err)
		}
	}
}

// die makes a rank's connections end as if its process had been killed.
func (m *Endpoint) die() {
	m.mu.Lock()
	for c := range m.conns {
		c.Close()
	}
	m.mu.Unlock()
	m.end(errors.New("dead"))
}

func TestDeathOfThePeer(t *testing.T) {
	for name, meet := range map[string]func(endpoints []*Endpoint){
		"it has sent":     func(endpoints []*Endpoint) { mustSend(t, endpoints[1], 0, 1, nil) },
		"it has received": func(endpoints []*Endpoint) { mustSend(t, endpoints[0], 1, 1, nil) },
		"both": func(endpoints []*Endpoint) {
			mustSend(t, endpoints[0], 1, 1, nil)
			mustSend(t, endpoints[1], 0, 1, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			endpoints := world(t, 2, func(_ int, c *Config) { c.Timeout = 200 * time.Millisecond })
			meet(endpoints)
			eventually(t, func() bool { return endpoints[0].boxes[1].connected() || endpoints[1].boxes[0].connected() })
			if name != "it has received" {
				mustRecv(t, endpoints[0], 1, 1, nil)
			}
			received := make(chan error)
			go func() {
				_, _, err := endpoints[0].Recv(context.Background(), 1, 5, nil)
				received <- err
			}()
			eventually(t, func() bool { return endpoints[0].boxes[1].waitingFor(5) })
			endpoints[1].die()
			select {
			case err := <-received:
				if err == nil || !strings.Contains(err.Error(), "connection to rank 1 (127.0.0.1:") ||
					!strings.Contains(err.Error(), "lost") {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("Recv hangs")
			}
			if name == "it has sent" {
				return // a new connection would find the listener still open
			}
			eventually(t, func() bool { return endpoints[0].Send(context.Background(), 1, 5, 0, nil) != nil })
			if err := endpoints[0].Send(context.Background(), 1, 5, 0, nil); !strings.Contains(err.Error(),
				"connection to rank 1") {
				t.Error(err)
			}
		})
	}
}

func TestDeathInTheMiddleOfAMessage(t *testing.T) {
	endpoints := world(t, 2, nil)
	mustSend(t, endpoints[1], 0, 1, []byte("kept"))
	var head [headerSize]byte
	putHeader(head[:], kindMessage, 2, 0, 100)
	received := make(chan error)
	go func() {
		_, _, err := endpoints[0].Recv(context.Background(), 1, 2, make([]byte, 100))
		received <- err
	}()
	eventually(t, func() bool { return endpoints[0].boxes[1].waitingFor(2) })
	endpoints[1].outs[0].conn.Write(append(head[:], "beginning"...))
	endpoints[1].die()
	if err := <-received; err == nil || !strings.Contains(err.Error(), "connection to rank 1 (127.0.0.1:") {
		t.Error(err)
	}
	mustRecv(t, endpoints[0], 1, 1, []byte("kept"))
}

func TestBrokenProtocol(t *testing.T) {
	huge := make([]byte, headerSize)
	putHeader(huge, kindMessage, 1, 0, maxMessage+1)
	for want, p := range map[string][]byte{
		"kind 0x9":              append([]byte{9}, make([]byte, headerSize-1)...),
		"70368744177665 bytes":  huge,
		"it without goodbye":    {1, 2, 3},
		"rank 1 has closed its": append([]byte{byte(kindGoodbye)}, make([]byte, headerSize-1)...),
	} {
		endpoints := world(t, 2, nil)
		mustSend(t, endpoints[1], 0, 1, nil)
		endpoints[1].outs[0].conn.Write(p)
		endpoints[1].outs[0].conn.CloseWrite()
		if _, _, err := endpoints[0].Recv(limited(t), 1, 2, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWrongKey(t *testing.T) {
	endpoints := world(t, 2, func(r int, c *Config) {
		if r == 1 {
			c.Key = []byte("another secret")
		}
	})
	err := endpoints[1].Send(limited(t), 0, 1, 0, nil)
	if !errors.Is(err, auth.ErrProof) || !strings.Contains(err.Error(), "send with tag 1 to rank 0: connect: ") {
		t.Error(err)
	}
	if endpoints[0].boxes[1].connected() || endpoints[0].err() != nil {
		t.Error("the stranger came through")
	}
}

func TestMismatchesAreRefused(t *testing.T) {
	endpoints := world(t, 3, nil)
	mustSend(t, endpoints[1], 0, 1, nil)
	mustRecv(t, endpoints[0], 1, 1, nil)
	good := endpoints[1].hello(0)
	for want, at := range map[string]struct {
		byte  int
		value byte
	}{
		"connected already": {0, 'p'},
		"here is tagged":    {0, 'q'},
		"generation 6":      {4, 6},
		"rank 0 to rank 0":  {12, 0},
		"rank 3 to rank 0":  {12, 3},
		"looks for rank 2":  {16, 2},
		"4 ranks, here":     {20, 4},
	} {
		h := bytes.Clone(good)
		h[at.byte] = at.value
		c, _, err := endpoints[1].dialer.Try(t.Context(), 0, 0, h)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			c.Close()
		}
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	m := world(t, 2, nil)[0]
	for _, rank := range []int{-1, 2} {
		if err := m.Send(t.Context(), rank, 1, 0, nil); err == nil || !strings.Contains(err.Error(), "of 2") {
			t.Error(err)
		}
		if _, _, err := m.Recv(t.Context(), rank, 1, nil); err == nil || !strings.Contains(err.Error(), "of 2") {
			t.Error(err)
		}
	}
	for _, change := range []func(c *Config){
		func(c *Config) { c.Rank = 2 },
		func(c *Config) { c.Key = nil },
		func(c *Config) { c.Addrs = nil },
		func(c *Config) { c.Timeout = -1 },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Size: 2, Key: []byte("k"), Listener: l, Addrs: func(int) []string { return nil }}
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%+v passes", c)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("the listener is left open")
		}
	}
}

func TestNoDescriptorIsLeft(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	closeAll(world(t, 2, nil)) // the poller keeps its own
	before := count()
	var open atomic.Int64
	endpoints := world(t, 3, func(_ int, c *Config) {
		c.TrackFD = func(_ int, o bool) {
			if o {
				open.Add(1)
			} else {
				open.Add(-1)
			}
		}
	})
	for me, m := range endpoints {
		mustSend(t, m, (me+1)%3, 1, nil)
	}
	for me, m := range endpoints {
		mustRecv(t, m, (me+2)%3, 1, nil)
	}
	if n := open.Load(); n != 9 || count()-before != 9 { // three listeners, three connections with two ends each
		t.Errorf("%d descriptors are tracked, %d are open, want 9", n, count()-before)
	}
	closeAll(endpoints)
	if n := open.Load(); n != 0 || count() != before {
		t.Errorf("%d descriptors are tracked, %d are left", n, count()-before)
	}
}

// A label comes with its message, whichever way the message goes: to a waiting Recv, kept, to the rank itself, to
// RecvAny.
func TestLabels(t *testing.T) {
	endpoints := world(t, 2, nil)
	p := make([]byte, 4)
	for _, from := range []int{0, 1} {
		for label := range uint16(3) {
			label += 0xfffd
			waiting := make(chan uint16, 1)
			go func() {
				_, got, err := endpoints[0].Recv(limited(t), from, 1, make([]byte, 4))
				if err != nil {
					t.Error(err)
				}
				waiting <- got
			}()
			eventually(t, func() bool {
				b := &endpoints[0].boxes[from]
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.waiting[1]) > 0
			})
			for _, tag := range []uint32{1, 2, 3} {
				if err := endpoints[from].Send(limited(t), 0, tag, label, p); err != nil {
					t.Fatal(err)
				}
			}
			if got := <-waiting; got != label {
				t.Errorf("who waits gets label %d, want %d", got, label)
			}
			var long *TooLong
			if _, _, err := endpoints[0].Recv(limited(t), from, 2, p[:3]); !errors.As(err, &long) ||
				*long != (TooLong{from, 4, label, 3}) {
				t.Errorf("too long: %v", err)
			}
			if _, got, err := endpoints[0].Recv(limited(t), from, 2, p); err != nil || got != label {
				t.Errorf("kept: label %d, %v, want %d", got, err, label)
			}
			who, _, got, err := endpoints[0].RecvAny(limited(t), nil, 3, p)
			if err != nil || got != label || who != from {
				t.Errorf("any: label %d of rank %d, %v, want %d of %d", got, who, err, label, from)
			}
		}
	}
}
