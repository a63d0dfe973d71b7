package board

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// TestInterleavings lets members on goroutines of their own submit tensors in random order over one region with tiny
// rings, as the engine does. A member marks the card of a tensor if it knows one, and posts a Request otherwise. The
// coordinator publishes a Response when all have asked. Marks race with retirements, evictions, full rings and cuts. In
// every order each member reads the same batches, and each submission by all members is answered exactly once.
func TestInterleavings(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			members, cards := 2+rng.IntN(4), 1+rng.IntN(6)
			runInterleaving(t, seed, small(members, cards), 1+rng.IntN(8), 60)
		})
	}
}

func TestInterleavingsOfManyMembers(t *testing.T) {
	runInterleaving(t, 99, small(67, 4), 5, 6)
}

// simMember is one member; only member 0 uses the coordinator's part.
type simMember struct {
	b       *Board
	me      int
	rng     *rand.Rand
	rounds  []int           // per name: how often it has been executed here
	pending []bool          // per name: submitted and not executed
	request []bool          // per name: a Request must be posted yet
	known   map[int]simCard // name → card, as read from the log
	names   map[uint32]int  // card → name, as read from the log
	trace   []string        // the log as seen, with its cuts
	asked   []map[int]bool  // coordinator, per name: who has requested it
	mine    map[int]simCard // coordinator: name → card
	owner   map[uint32]int  // coordinator: card → name
	ready   []int           // coordinator: names to respond to
	failed  *atomic.Pointer[string]
}

type simCard struct{ card, gen uint32 }

func runInterleaving(t *testing.T, seed uint64, c Config, names, rounds int) {
	mem := make([]byte, Bytes(c)+64)
	mem = mem[-int(addr(mem))&63:][:Bytes(c)]
	if _, err := Format(mem, c); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Pointer[string]
	sims := make([]*simMember, c.Members)
	for m := range sims {
		b, err := Attach(mem, c) // a Board per member, as in separate processes
		if err != nil {
			t.Fatal(err)
		}
		sims[m] = &simMember{
			b: b, me: m, rng: rand.New(rand.NewPCG(seed, uint64(m)+1)),
			rounds: make([]int, names), pending: make([]bool, names), request: make([]bool, names),
			known: map[int]simCard{}, names: map[uint32]int{}, failed: &failed,
		}
	}
	sims[0].asked = make([]map[int]bool, names)
	for i := range sims[0].asked {
		sims[0].asked[i] = map[int]bool{}
	}
	sims[0].mine, sims[0].owner = map[int]simCard{}, map[uint32]int{}

	deadline := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for _, s := range sims {
		wg.Go(func() {
			for !s.done(rounds) && failed.Load() == nil {
				s.step(rounds)
				if s.rng.IntN(3) == 0 {
					runtime.Gosched()
				}
				if time.Now().After(deadline) {
					s.fail("not done in time: a mark, a record or a request was lost; executed %v", s.rounds)
				}
			}
			// The coordinator and slow readers need nothing from a member that is done.
		})
	}
	wg.Wait()
	if f := failed.Load(); f != nil {
		t.Fatalf("seed %d: %s", seed, *f)
	}
	for _, s := range sims[1:] {
		if !slices.Equal(s.trace, sims[0].trace) {
			t.Fatalf("seed %d: member %d saw another log than member 0:\n%v\n%v", seed, s.me, s.trace, sims[0].trace)
		}
	}
}

func (s *simMember) fail(format string, args ...any) {
	text := fmt.Sprintf("member %d: ", s.me) + fmt.Sprintf(format, args...)
	s.failed.CompareAndSwap(nil, &text)
}

func (s *simMember) check(err error) {
	if err != nil {
		s.fail("%v", err)
	}
}

func (s *simMember) done(rounds int) bool {
	for _, n := range s.rounds {
		if n < rounds {
			return false
		}
	}
	return true
}

func (s *simMember) step(rounds int) {
	switch s.rng.IntN(4) {
	case 0:
		s.submit(rounds)
	case 1:
		s.post()
	case 2:
		s.read()
	case 3:
		if s.me == 0 {
			s.coordinate()
		}
	}
}

// submit starts one more round of a random name.
func (s *simMember) submit(rounds int) {
	name := s.rng.IntN(len(s.rounds))
	if s.pending[name] || s.rounds[name] == rounds {
		return
	}
	s.pending[name] = true
	k, ok := s.known[name]
	if !ok || s.rng.IntN(8) == 0 { // now and then post a full Request although the card is known
		s.request[name] = true
		return
	}
	mark := s.b.Mark
	if s.rng.IntN(2) == 0 {
		mark = s.b.MarkLast
	}
	r, err := mark(s.me, k.card, k.gen)
	s.check(err)
	if r == Stale {
		s.request[name] = true
	}
}

func (s *simMember) post() {
	for name, want := range s.request {
		if want {
			p := make([]byte, 4+s.rng.IntN(50))
			binary.LittleEndian.PutUint32(p, uint32(name))
			ok, err := s.b.Post(s.me, p)
			s.check(err)
			s.request[name] = !ok
		}
	}
}

func (s *simMember) read() {
	batch, err := s.b.Next(s.me)
	s.check(err)
	if len(batch) == 0 {
		return
	}
	for _, r := range batch {
		name := -1
		switch r.Kind {
		case transport.RecordCard:
			n, ok := s.names[r.Card]
			if !ok {
				s.fail("record of card %d, which stands for nothing", r.Card)
				return
			}
			name = n
			s.trace = append(s.trace, fmt.Sprintf("card %d = %d", r.Card, name))
		case transport.RecordResponse:
			name = s.learn(r.Payload)
		}
		if !s.pending[name] {
			s.fail("name %d executed, but not submitted; log %v", name, s.trace)
			return
		}
		s.pending[name] = false
		s.rounds[name]++
	}
	s.trace = append(s.trace, "cut")
}

// learn reads a Response: the name, and its card from now on.
func (s *simMember) learn(p []byte) int {
	name := int(binary.LittleEndian.Uint32(p))
	k := simCard{binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])}
	for i, c := range p[12:] {
		if c != byte(name+i) {
			s.fail("payload of name %d damaged at byte %d", name, i)
			break
		}
	}
	if old, ok := s.known[name]; ok && s.names[old.card] == name {
		delete(s.names, old.card)
	}
	delete(s.known, name)
	if k.gen != 0 {
		if other, ok := s.names[k.card]; ok {
			delete(s.known, other)
		}
		s.names[k.card], s.known[name] = name, k
	}
	s.trace = append(s.trace, fmt.Sprintf("response %d = card %d.%d", name, k.card, k.gen))
	return name
}

func (s *simMember) coordinate() {
	if s.rng.IntN(10) == 0 {
		s.retire(s.rng.IntN(len(s.rounds)))
	}
	s.check(s.b.TakeRequests(func(from []int, p []byte) {
		name := int(binary.LittleEndian.Uint32(p))
		s.retire(name) // a full Request ends the cached one
		s.ask(name, from[0])
	}))
	for len(s.ready) > 0 && s.respond(s.ready[0]) {
		s.ready = s.ready[1:]
	}
}

func (s *simMember) ask(name, from int) {
	if s.asked[name][from] {
		s.fail("member %d asked for name %d twice in a round", from, name)
	}
	s.asked[name][from] = true
	if len(s.asked[name]) == s.b.cfg.Members {
		clear(s.asked[name])
		s.ready = append(s.ready, name)
	}
}

// retire ends the card of a name and turns its marks into requests.
func (s *simMember) retire(name int) {
	k, ok := s.mine[name]
	if !ok {
		return
	}
	marked, ok, err := s.b.Retire(k.card)
	s.check(err)
	if !ok {
		s.fail("card %d of name %d was not taken", k.card, name)
	}
	delete(s.mine, name)
	delete(s.owner, k.card)
	for _, m := range marked {
		s.ask(name, m)
	}
}

func (s *simMember) respond(name int) bool {
	p := make([]byte, 12+s.rng.IntN(40))
	binary.LittleEndian.PutUint32(p, uint32(name))
	card, gen, ok, err := s.b.Acquire()
	s.check(err)
	if ok {
		if marks, err := s.b.Marked(card); err != nil || len(marks) > 0 {
			s.fail("acquired card %d with marks of %v, %v", card, marks, err)
		}
		if old, taken := s.owner[card]; taken {
			delete(s.mine, old)
		}
		delete(s.owner, card)
		binary.LittleEndian.PutUint32(p[4:], card)
		binary.LittleEndian.PutUint32(p[8:], gen)
	}
	for i := range p[12:] {
		p[12+i] = byte(name + i)
	}
	published, err := s.b.Publish(p)
	s.check(err)
	if published == 0 {
		if ok { // nobody has heard of the card: give it back
			_, _, err := s.b.Retire(card)
			s.check(err)
		}
		return false
	}
	if ok {
		s.mine[name], s.owner[card] = simCard{card, gen}, name
	}
	return true
}
