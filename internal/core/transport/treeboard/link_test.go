package treeboard

import (
	"bytes"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// link is a Pipe in memory. Frames wait, in order per pair, until deliver.
type link struct {
	t      testing.TB
	hosts  [][]int
	boards []Board
	queues map[[2]int][][]byte
	sent   map[[2]int]int // bytes, ever
	limit  int
	rings  []int // by member: how often its bell rang
	abort  func(member int, err error)
	sends  func(from int, frame []byte) // called for each frame, if not nil
	// sendsTo is likewise.
	sendsTo func(from, to int, frame []byte)
}

type end struct {
	*link
	from int
}

func (e end) Send(to int, frame []byte) {
	if e.sends != nil {
		e.sends(e.from, frame)
	}
	if e.sendsTo != nil {
		e.sendsTo(e.from, to, frame)
	}
	key := [2]int{e.from, to}
	e.queues[key] = append(e.queues[key], bytes.Clone(frame))
	e.sent[key] += len(frame)
	sum := 0
	for _, f := range e.queues[key] {
		sum += len(f) + 16
	}
	if sum > e.limit {
		e.t.Fatalf("%d bytes are queued from %d to %d; QueueLimit is %d", sum, e.from, to, e.limit)
	}
}

func (end) Flush() {}

// earlyInTests is Config.Early of all lanes in tests.
const earlyInTests = 256

// newLink makes a lane; its boards have no Combiner unless combine makes one.
func newLink(t testing.TB, hosts [][]int, cards int, combine func([]int) transport.Combiner) *link {
	t.Helper()
	n := size(hosts)
	l := &link{t: t, hosts: hosts, boards: make([]Board, n), queues: map[[2]int][][]byte{}, sent: map[[2]int]int{},
		limit: QueueLimit(cards, earlyInTests), rings: make([]int, n)}
	l.abort = func(member int, err error) { t.Fatalf("member %d aborts: %v", member, err) }
	for h, members := range hosts {
		up, err := board.NewPrivate(UpConfig(hosts, h, cards, earlyInTests))
		if err != nil {
			t.Fatal(err)
		}
		down, err := board.NewPrivate(DownConfig(hosts, h, cards, earlyInTests))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			b, err := New(Config{Member: m, Hosts: hosts, Cards: cards, Early: earlyInTests, Up: up, Down: down,
				Pipe: end{l, m}, Combine: combine, Ring: func() { l.rings[m]++ },
				RingLocal: func(i int) { l.rings[members[i]]++ },
				Abort:     func(err error) { l.abort(m, err) }})
			if err != nil {
				t.Fatal(err)
			}
			l.boards[m] = b
		}
	}
	return l
}

// alone are n hosts of one member each.
func alone(n int) [][]int { return hostsOf(n, 1) }

// hostsOf are n members on hosts of that many members each.
func hostsOf(n, each int) [][]int {
	var hosts [][]int
	for m := range n {
		if m%each == 0 {
			hosts = append(hosts, nil)
		}
		hosts[m/each] = append(hosts[m/each], m)
	}
	return hosts
}

// deliver hands over the first n frames from one member to another.
func (l *link) deliver(from, to, n int) {
	l.t.Helper()
	key := [2]int{from, to}
	for ; n > 0 && len(l.queues[key]) > 0; n-- {
		f := l.queues[key][0]
		l.queues[key] = l.queues[key][1:]
		if err := l.boards[to].Receive(from, f); err != nil {
			l.t.Fatalf("from %d to %d: %v", from, to, err)
		}
		clear(f) // Receive must not keep it
	}
}

// pairs are the links of the tree, in both directions.
func (l *link) pairs() [][2]int {
	var pairs [][2]int
	for _, members := range l.hosts {
		for _, m := range members[1:] {
			pairs = append(pairs, [2]int{m, members[0]})
		}
	}
	for h := 1; h < len(l.hosts); h++ {
		a, b := l.hosts[h][0], l.hosts[(h-1)/Arity][0]
		pairs = append(pairs, [2]int{a, b}, [2]int{b, a})
	}
	return pairs
}

// turn gives the board a turn, as a member's driver does.
func turn(b Board) {
	if p := b.Poller(); p != nil {
		p.Poll()
	}
}

// nextBatch does what a driver does when it could begin another batch.
func nextBatch(b Board) []transport.Record {
	turn(b)
	if p := b.Poller(); p != nil {
		p.Cut()
	}
	return b.Next()
}

// deliverAll hands over all frames under way, and those that they cause.
func (l *link) deliverAll() {
	l.t.Helper()
	for moved := true; moved; {
		moved = false
		for _, p := range l.pairs() {
			moved = moved || len(l.queues[p]) > 0
			l.deliver(p[0], p[1], 1<<30)
		}
	}
}

// poll gives every leader turns, as its driver does in each round, until no frame is under way.
func (l *link) poll() {
	l.t.Helper()
	for range 2 * len(l.hosts) {
		for _, members := range l.hosts {
			turn(l.boards[members[0]])
		}
		l.deliverAll()
	}
}
