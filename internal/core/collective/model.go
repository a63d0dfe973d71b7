package collective

import (
	"math/bits"
	"time"
)

// A model of the cost of an allreduce over a Comm. Its unit is the cost of a byte on a connection between two members.
// m is the cost of a message beyond its bytes. With s members, of whom p, a power of two, take part in doubling and
// halving, n bytes on the wire, and k members that use one link at the same time:
//
//	doubling  log2(p)·(m + 9/8·k·n), and 2·(m + k·n) where p < s
//	halving   2·log2(p)·m + 17/8·k·n·(p-1)/p, and 2·(m + k·n) where p < s
//	ring      2(s-1)·m + 2·k·n·(s-1)/s
//
// Unlike the ring, doubling and halving do not reduce while they receive: reducing data in the cache costs an eighth of
// receiving it.
//
// Measured by BenchmarkAllreduceTCP on the loopback interface of two cores, with 2, 4 and 8 members in one process: two
// exchange 4 bytes in 6 µs and 1 MiB in 170 µs, so a message costs about as much as 32 KiB. Doubling is as fast as the
// ring at 1 MiB between two members and takes half as long again at 4 MiB; it meets halving at about 64 KiB between
// four and at 64 to 256 KiB between eight, and halving the ring at 1 to 4 MiB. On a slower wire a message costs fewer
// bytes: Tuning.Message may say so.
//
// Where the links have been measured (Tuning.Over), m is their latency in bytes, and the ring's cost has another form,
// since its pieces travel while others are combined. A step keeps the link busy for a share, n/s, and c for each of its
// pieces, of q bytes. A piece that has come in one step can go on in the next one m + k·q after it was sent:
//
//	ring      2(s-1)-1 times the larger of b = k·n/s + c·pieces and m + k·q, then b + m
//
// So the ring hides the latency of a share that is long enough, which doubling and halving cannot. Their eighth stays
// on slow links, too: each of their rounds goes to another peer, over a connection whose window may have to open anew.

// messageBytes is m, unless Lane.Tune says otherwise.
const messageBytes = 32 << 10

// way is an algorithm for an allreduce over a Comm.
type way int

const (
	doubling way = iota
	halving
	ringing
)

func (w way) String() string { return [...]string{"doubling", "halving", "ring"}[w] }

// Choice is an algorithm for allreduces between hosts.
type Choice struct {
	Algorithm string // doubling, halving or ring
	Most      int    // the largest length for which it is chosen, among powers of two; 0: all that are longer
}

// Choices are what allreduces among hosts of one member each choose over a link, from the shortest tensors to the
// longest.
func Choices(hosts int, k Link) (all []Choice) {
	t := DefaultTuning.Over(k)
	l := Lane{message: t.Message, rate: t.Rate, piece: t.Piece}
	const longest = 1 << 30
	for n := 4; n <= longest; n *= 2 {
		w, _ := l.across(hosts, n, 1, 1)
		if last := len(all) - 1; last >= 0 && all[last].Algorithm == w.String() {
			all[last].Most = n
		} else {
			all = append(all, Choice{w.String(), n})
		}
	}
	all[len(all)-1].Most = 0
	return all
}

// across returns the cheapest way and its cost, for size members and n bytes on the wire. links members use a link at
// the same time; in the ring ringLinks do.
func (l *Lane) across(size, n, links, ringLinks int) (best way, cost int) {
	m := l.message
	rounds := bits.Len(uint(size)) - 1
	part := 1 << rounds
	fold := 0
	if part != size {
		fold = 2 * (m + links*n)
	}
	best, cost = doubling, fold+rounds*(m+links*(n+n/8))
	if c := fold + 2*rounds*m + links*(n-n/part)*17/8; c < cost {
		best, cost = halving, c
	}
	if c := l.ringCost(size, n, ringLinks); c < cost {
		best, cost = ringing, c
	}
	return best, cost
}

// ringCost is the cost of the ring.
func (l *Lane) ringCost(size, n, links int) int {
	if l.rate == 0 {
		return 2*(size-1)*l.message + 2*links*(n-n/size)
	}
	share := ceilDiv(n, size)
	pieces := ceilDiv(share, l.piece)
	busy := links*share + pieces*min(l.message, inBytes(pieceTime, l.rate))
	return (2*(size-1)-1)*max(busy, l.message+links*min(l.piece, share)) + busy + l.message
}

// pieceTime is what a piece costs beyond its bytes and its latency: two system calls, and the driver's turns.
const pieceTime = 10 * time.Microsecond

// acrossCost is the cost of the cheapest way.
func (l *Lane) acrossCost(size, n, links, ringLinks int) int {
	_, cost := l.across(size, n, links, ringLinks)
	return cost
}
