package tcp

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// BenchmarkExchange passes messages between two ranks in both directions at once.
func BenchmarkExchange(b *testing.B) {
	for _, size := range []int{4, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			benchmark(b, nil, 1<<20, func(r *benchRank) {
				r.comm.Recv(1-r.me, r.in[:size])
				r.comm.Send(1-r.me, r.out[:size])
				r.until(func() bool { return r.comm.Sent(1-r.me) && r.comm.Received(1-r.me) })
			})
		})
	}
}

// BenchmarkSealed is BenchmarkExchange of a large message, with TLS and without.
func BenchmarkSealed(b *testing.B) {
	const size = 32 << 20
	for _, sealed := range []bool{false, true} {
		for _, streams := range []int{1, 2} {
			b.Run(fmt.Sprintf("tls=%v/streams=%d", sealed, streams), func(b *testing.B) {
				b.SetBytes(size)
				benchmark(b, func(_ int, c *Config) {
					c.TLS, c.Streams = certtest.Own(sealed), streams
				}, size, func(r *benchRank) {
					r.comm.Recv(1-r.me, r.in)
					r.comm.Send(1-r.me, r.out)
					r.until(func() bool { return r.comm.Sent(1-r.me) && r.comm.Received(1-r.me) })
				})
			})
		}
	}
}

// BenchmarkBoard marks a card and waits for the batch.
func BenchmarkBoard(b *testing.B) {
	benchmark(b, nil, 1<<20, func(r *benchRank) {
		r.lane.Board.Mark(r.card, r.gen)
		r.until(func() bool { return nextBatch(r.lane) != nil })
	})
}

type benchRank struct {
	me        int
	n         *Network
	comm      transport.Comm
	lane      *transport.Lane
	card, gen uint32
	in, out   []byte
}

func (r *benchRank) until(done func() bool) {
	for !done() {
		ticket := r.n.bell.Arm()
		if done() {
			r.n.bell.Disarm()
			return
		}
		r.n.bell.Sleep(ticket, patience)
	}
}

// benchmark runs step b.N times on both ranks of a world, which have buffers of that size.
func benchmark(b *testing.B, configure func(r int, c *Config), size int, step func(r *benchRank)) {
	networks := world(b, 2, configure)
	lanes := openAll(b, networks, 0)
	card, gen, _ := lanes[0].Coordination.Acquire()
	var g sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for me, n := range networks {
		g.Go(func() {
			r := &benchRank{me: me, n: n, comm: lanes[me].Comm, lane: lanes[me], card: card, gen: gen,
				in: make([]byte, size), out: make([]byte, size)}
			for range b.N {
				step(r)
			}
		})
	}
	g.Wait()
}
