package msgboard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/transport"
)

// link is a Pipe in memory. Frames wait, in order per pair, until deliver.
type link struct {
	t      *testing.T
	boards []Board
	queues map[[2]int][][]byte
	limit  int
	rings  []int // by member: how often it was woken
}

type end struct {
	*link
	from int
}

func (e end) Send(to int, frame []byte) {
	key := [2]int{e.from, to}
	e.queues[key] = append(e.queues[key], bytes.Clone(frame))
	sum := 0
	for _, f := range e.queues[key] {
		sum += len(f) + 16
	}
	if sum > e.limit {
		e.t.Fatalf("%d bytes are queued from %d to %d; QueueLimit is %d", sum, e.from, to, e.limit)
	}
}

func newLink(t *testing.T, size, slots int) *link {
	l := &link{t: t, queues: map[[2]int][][]byte{}, limit: QueueLimit(slots), rings: make([]int, size)}
	for m := range size {
		b, err := New(Config{Member: m, Size: size, Slots: slots, Pipe: end{l, m}, Ring: func() { l.rings[m]++ },
			Abort: func(err error) { t.Fatalf("member %d aborts: %v", m, err) }})
		if err != nil {
			t.Fatal(err)
		}
		l.boards = append(l.boards, b)
	}
	return l
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
		clear(f) // Receive may not keep it
	}
}

// deliverAll hands over everything that is under way, and what that sends.
func (l *link) deliverAll() {
	l.t.Helper()
	for range 2 { // no answer to a frame has an answer
		for m := range l.boards {
			l.deliver(0, m, 1<<30)
			l.deliver(m, 0, 1<<30)
		}
	}
}

// worker is a member that executes every name `rounds` times, marking a name
// that has a slot and posting one that has none.
type worker struct {
	board  Board
	log    [][]string // the batches that it has seen, as text
	slotOf map[string][2]uint32
	nameOf map[uint32]string
	done   map[string]int
	asked  map[string]bool
	toPost []string
}

func response(name string, slot, gen uint32) []byte {
	p := binary.LittleEndian.AppendUint32(nil, slot)
	return append(binary.LittleEndian.AppendUint32(p, gen), name...)
}

func (w *worker) submit(name string) {
	w.asked[name] = true
	if s, ok := w.slotOf[name]; ok && w.board.Mark(s[0], s[1]) {
		return
	}
	w.toPost = append(w.toPost, name)
}

func (w *worker) drive(t *testing.T) {
	w.board.Stale(func(slot, gen uint32) {
		for name, s := range w.slotOf {
			if s == [2]uint32{slot, gen} && w.asked[name] {
				w.toPost = append(w.toPost, name)
				delete(w.slotOf, name)
				return
			}
		}
	})
	for len(w.toPost) > 0 && w.board.Post([]byte(w.toPost[0])) {
		w.toPost = w.toPost[1:]
	}
	records := w.board.Next()
	if records == nil {
		return
	}
	var batch []string
	for _, r := range records {
		name := ""
		if r.Kind == transport.RecordSlot {
			name = w.nameOf[r.Slot]
			batch = append(batch, fmt.Sprintf("slot %d", r.Slot))
		} else {
			slot, gen := binary.LittleEndian.Uint32(r.Payload), binary.LittleEndian.Uint32(r.Payload[4:])
			name = string(r.Payload[8:])
			batch = append(batch, fmt.Sprintf("response %s %d %d", name, slot, gen))
			if old, ok := w.nameOf[slot]; ok && old != name {
				if w.slotOf[old][0] == slot && !w.asked[old] {
					delete(w.slotOf, old)
				}
			}
			w.slotOf[name] = [2]uint32{slot, gen}
			w.nameOf[slot] = name
		}
		if !w.asked[name] {
			t.Fatalf("%q is executed, but was not submitted", name)
		}
		w.asked[name] = false
		w.done[name]++
	}
	w.log = append(w.log, batch)
}

// coordination is what negotiate.Coordinator does, at its simplest.
type coordination struct {
	board  Board
	size   int
	ready  map[string]map[int]bool
	slotOf map[string]uint32
	nameOf map[uint32]string
	toSend []string
}

func (c *coordination) retire(name string) {
	slot, ok := c.slotOf[name]
	if !ok {
		return
	}
	delete(c.slotOf, name)
	marked, ok := c.board.Retire(slot)
	if !ok {
		return
	}
	for _, m := range marked {
		c.add(name, m)
	}
}

func (c *coordination) add(name string, from int) {
	if c.ready[name] == nil {
		c.ready[name] = map[int]bool{}
	}
	c.ready[name][from] = true
	if len(c.ready[name]) == c.size {
		delete(c.ready, name)
		c.toSend = append(c.toSend, name)
	}
}

func (c *coordination) drive() {
	c.board.Requests(func(from []int, p []byte) {
		c.retire(string(p))
		c.add(string(p), from[0])
	})
	for len(c.toSend) > 0 {
		name := c.toSend[0]
		slot, gen, ok := c.board.Acquire()
		if !ok {
			return
		}
		if old, ok := c.nameOf[slot]; ok && c.slotOf[old] == slot {
			delete(c.slotOf, old)
		}
		if !c.board.Publish(response(name, slot, gen)) {
			return
		}
		c.slotOf[name], c.nameOf[slot] = slot, name
		c.toSend = c.toSend[1:]
	}
}

// TestSimulation runs random interleavings of members, deliveries and
// retirements, with fewer slots than names, and checks that all members see the
// same batches and execute everything exactly as often as they submitted it.
func TestSimulation(t *testing.T) {
	for seed := range uint64(60) {
		simulate(t, seed)
	}
}

func simulate(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	rnd := rand.New(rand.NewPCG(seed, 1))
	size, slots, rounds := 1+rnd.IntN(4), 1+rnd.IntN(6), 8
	l := newLink(t, size, slots)
	var names []string
	for i := range 1 + rnd.IntN(8) {
		names = append(names, fmt.Sprintf("tensor-%d%s", i, bytes.Repeat([]byte("x"), rnd.IntN(3000))))
	}
	c := &coordination{board: l.boards[0], size: size, ready: map[string]map[int]bool{},
		slotOf: map[string]uint32{}, nameOf: map[uint32]string{}}
	var workers []*worker
	for _, b := range l.boards {
		workers = append(workers, &worker{board: b, slotOf: map[string][2]uint32{}, nameOf: map[uint32]string{},
			done: map[string]int{}, asked: map[string]bool{}})
	}
	finished := func() bool {
		for _, w := range workers {
			for _, n := range names {
				if w.done[n] < rounds {
					return false
				}
			}
		}
		return true
	}
	steps := 0
	for ; !finished(); steps++ {
		if steps > 200_000 {
			t.Fatalf("seed %d: not finished after %d steps", seed, steps)
		}
		w := workers[rnd.IntN(size)]
		switch rnd.IntN(6) {
		case 0:
			if n := names[rnd.IntN(len(names))]; !w.asked[n] && w.done[n] < rounds {
				w.submit(n)
			}
		case 1:
			w.drive(t)
		case 2:
			c.drive()
		case 3:
			l.deliver(0, rnd.IntN(size), 1+rnd.IntN(3))
		case 4:
			l.deliver(rnd.IntN(size), 0, 1+rnd.IntN(3))
		case 5:
			if rnd.IntN(20) == 0 {
				c.retire(names[rnd.IntN(len(names))])
			}
		}
	}
	by := rnd.IntN(size)
	l.boards[by].Close()
	for range 3 {
		l.deliverAll()
		for _, w := range workers {
			w.drive(t)
		}
	}
	for m, w := range workers {
		if got, want := fmt.Sprint(w.log), fmt.Sprint(workers[0].log); got != want {
			t.Fatalf("seed %d: member %d saw %s, member 0 %s", seed, m, got, want)
		}
		if !w.board.Closed() || w.board.ClosedBy() != by {
			t.Fatalf("seed %d: member %d: closed %v by %d, want by %d", seed, m, w.board.Closed(), w.board.ClosedBy(), by)
		}
		for _, n := range names {
			if w.done[n] != rounds {
				t.Fatalf("seed %d: member %d executed %.10q %d times, want %d", seed, m, n, w.done[n], rounds)
			}
		}
	}
}
