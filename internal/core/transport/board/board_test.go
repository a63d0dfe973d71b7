package board

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// small is a board whose rings wrap after a few messages.
func small(members, cards int) Config {
	return Config{Members: members, Readers: members, Cards: cards, LogBytes: roundUp(8*cards+64, 64),
		MailboxBytes: 128}
}

func mustNew(t testing.TB, c Config) *Board {
	t.Helper()
	b, err := NewPrivate(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustAcquire(t testing.TB, b *Board) (card, gen uint32) {
	t.Helper()
	card, gen, ok, err := b.Acquire()
	if err != nil || !ok {
		t.Fatalf("Acquire: ok %v, error %v", ok, err)
	}
	return card, gen
}

func mustMark(t testing.TB, b *Board, member int, card, gen uint32, want Result) {
	t.Helper()
	got, err := b.Mark(member, card, gen)
	if err != nil || got != want {
		t.Fatalf("Mark(%d, %d, %d) = %v, %v, want %v", member, card, gen, got, err, want)
	}
}

func mustPublish(t testing.TB, b *Board, p []byte, want bool) {
	t.Helper()
	n, err := b.Publish(p)
	if err != nil || n > 0 != want {
		t.Fatalf("Publish(%d bytes) = %d, %v, want %v", len(p), n, err, want)
	}
}

func mustNext(t testing.TB, b *Board, reader, want int) []transport.Record {
	t.Helper()
	r, err := b.Next(reader)
	if err != nil || len(r) != want {
		t.Fatalf("Next(%d) = %v, %v, want %d records", reader, r, err, want)
	}
	return r
}

func TestMoreMembersThanAWord(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 100, 128, 129} {
		c := Standard(n, 1, 4)
		b := mustNew(t, c)
		card, gen := mustAcquire(t, b)
		for round := range 2 {
			for i := range n {
				m := (i*7 + 3*round) % n
				if n%7 == 0 {
					m = i
				}
				want := Marked
				if i == n-1 {
					want = Completed
				}
				mustMark(t, b, m, card, gen, want)
			}
			if r := mustNext(t, b, 0, 1); r[0].Kind != transport.RecordCard || r[0].Card != card {
				t.Fatalf("%d members: record %+v", n, r[0])
			}
		}
		var want []int
		for m := 0; m < n-1; m += 9 {
			mustMark(t, b, m, card, gen, Marked)
			want = append(want, m)
		}
		if got, err := b.Marked(card); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d members: Marked = %v, %v, want %v", n, got, err, want)
		}
		if got, ok, err := b.Retire(card); err != nil || !ok || !slices.Equal(got, want) {
			t.Fatalf("%d members: Retire = %v, %v, %v, want %v", n, got, ok, err, want)
		}
		mustMark(t, b, n-1, card, gen, Stale)
	}
}

func TestBatchesAreCutByTheFirstReader(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 4))
	mustPublish(t, b, []byte("a"), true)
	mustPublish(t, b, []byte("b"), true)
	mustNext(t, b, 0, 2)
	mustPublish(t, b, []byte("c"), true)
	if r := mustNext(t, b, 1, 2); string(r[0].Payload) != "a" || string(r[1].Payload) != "b" {
		t.Fatalf("second reader got %q, %q", r[0].Payload, r[1].Payload)
	}
	mustNext(t, b, 1, 1)
	mustPublish(t, b, []byte("d"), true)
	if r := mustNext(t, b, 0, 1); string(r[0].Payload) != "c" {
		t.Fatalf("first reader got %q", r[0].Payload)
	}
	mustNext(t, b, 0, 1)
	mustNext(t, b, 0, 0)
	mustNext(t, b, 1, 1)
	mustNext(t, b, 1, 0)
}

func TestLastIsWhoCompleted(t *testing.T) {
	b := mustNew(t, Standard(3, 3, 2))
	card, gen := mustAcquire(t, b)
	for last := range 3 {
		for m := range 3 {
			if m != last {
				mustMark(t, b, m, card, gen, Marked)
			}
		}
		mustMark(t, b, last, card, gen, Completed)
		for m := range 3 {
			mustNext(t, b, m, 1)
			if got := b.Last(card); int(got) != last {
				t.Errorf("member %d was the last, not %d", got, last)
			}
		}
	}
}

func TestAcquireTakesTheLeastRecentlyUsed(t *testing.T) {
	b := mustNew(t, Standard(1, 1, 3))
	gens := make([]uint32, 3)
	for i := range uint32(3) {
		card, gen := mustAcquire(t, b)
		if card != i {
			t.Fatalf("free card %d, want %d", card, i)
		}
		gens[i] = gen
	}
	mustMark(t, b, 0, 0, gens[0], Completed)
	// Card 1 is now the oldest, then 2; card 0 also has an unread record.
	if card, gen := mustAcquire(t, b); card != 1 || gen == gens[1] {
		t.Fatalf("acquired card %d generation %d", card, gen)
	}
	mustMark(t, b, 0, 1, gens[1], Stale)
	if card, _ := mustAcquire(t, b); card != 2 {
		t.Fatalf("acquired card %d, want 2", card)
	}
	mustNext(t, b, 0, 1)
	if card, _ := mustAcquire(t, b); card != 0 {
		t.Fatalf("acquired card %d, want 0, whose record is read now", card)
	}
}

func TestAcquireSparesMarkedAndUnreadCards(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 2))
	s0, g0 := mustAcquire(t, b)
	s1, g1 := mustAcquire(t, b)
	mustMark(t, b, 1, s0, g0, Marked)
	mustMark(t, b, 0, s1, g1, Marked)
	mustMark(t, b, 1, s1, g1, Completed)
	mustNext(t, b, 0, 1) // reader 1 has not read it
	if s, _, ok, err := b.Acquire(); ok || err != nil {
		t.Fatalf("acquired card %d, %v", s, err)
	}
	// The board still knows of the unread record after Retire.
	if _, ok, err := b.Retire(s1); !ok || err != nil {
		t.Fatalf("Retire: %v, %v", ok, err)
	}
	if s, _, ok, err := b.Acquire(); ok || err != nil {
		t.Fatalf("acquired card %d, %v", s, err)
	}
	mustNext(t, b, 1, 1)
	if s, _ := mustAcquire(t, b); s != s1 {
		t.Fatalf("acquired card %d, want %d", s, s1)
	}
}

func TestMarkTwiceIsAnError(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 2))
	s, g := mustAcquire(t, b)
	mustMark(t, b, 0, s, g, Marked)
	if _, err := b.Mark(0, s, g); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("second mark: %v", err)
	}
	mustMark(t, b, 1, s, g, Completed) // the lock is free again
}

func TestFullLogKeepsRoomForCards(t *testing.T) {
	const cards = 5
	b := mustNew(t, small(1, cards))
	var woken []int
	b.SetWake(func(m int) { woken = append(woken, m) })
	gens := make([]uint32, cards)
	for range gens {
		s, g := mustAcquire(t, b)
		gens[s] = g
	}
	n := 0
	for ; ; n++ {
		published, err := b.Publish([]byte("12345678"))
		if err != nil {
			t.Fatal(err)
		}
		if published == 0 {
			break
		}
	}
	for s, g := range gens {
		mustMark(t, b, 0, uint32(s), g, Completed)
	}
	mustPublish(t, b, nil, false)
	mustNext(t, b, 0, n+cards)
	if !slices.Equal(woken, []int{0}) {
		t.Fatalf("woken %v, want the coordinator once", woken)
	}
	mustPublish(t, b, []byte("12345678"), true)
	mustNext(t, b, 0, 1)
	if len(woken) != 1 {
		t.Fatalf("woken %v although nobody waits", woken)
	}
}

func TestMailIsDeliveredInOrder(t *testing.T) {
	b := mustNew(t, small(3, 2))
	var woken []int
	b.SetWake(func(m int) { woken = append(woken, m) })
	var want [3][]byte
	var got [3][]byte
	next := byte(0)
	for round := range 40 {
		for m := 1; m < 3; m++ {
			for {
				p := bytes.Repeat([]byte{next}, (round*5+int(next))%60)
				ok, err := b.Post(m, p)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				want[m] = append(append(want[m], p...), 0xff)
				next = (next + 1) % 0xff
			}
		}
		woken = nil
		if err := b.TakeRequests(func(from []int, p []byte) {
			got[from[0]] = append(append(got[from[0]], p...), 0xff)
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(woken, []int{1, 2}) {
			t.Fatalf("woken %v, want both that found no room", woken)
		}
	}
	for m := range want {
		if !bytes.Equal(got[m], want[m]) {
			t.Fatalf("member %d: requests differ", m)
		}
	}
}

func TestOversizedMessagesAreErrors(t *testing.T) {
	b := mustNew(t, small(1, 2))
	if _, err := b.Post(0, make([]byte, 121)); err == nil {
		t.Error("a request larger than the mailbox was accepted")
	}
	if ok, err := b.Post(0, make([]byte, 120)); !ok || err != nil {
		t.Errorf("a request that fills the mailbox: %v, %v", ok, err)
	}
	if _, err := b.Publish(make([]byte, 200)); err == nil {
		t.Error("a response larger than the log was accepted")
	}
	b = mustNew(t, Standard(1, 1, 2))
	mustPublish(t, b, make([]byte, transport.MaxRecord), true)
	if ok, err := b.Post(0, make([]byte, transport.MaxRecord)); !ok || err != nil {
		t.Errorf("the largest request: %v, %v", ok, err)
	}
	if _, err := b.Post(0, make([]byte, transport.MaxRecord+1)); err == nil {
		t.Error("a request beyond MaxRecord was accepted")
	}
	if r := mustNext(t, b, 0, 1); len(r[0].Payload) != transport.MaxRecord {
		t.Errorf("payload of %d bytes", len(r[0].Payload))
	}
}

func TestClose(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 2))
	s, g := mustAcquire(t, b)
	mustPublish(t, b, []byte("last"), true)
	if b.ClosedBy() != -1 || b.Drained(0) {
		t.Fatal("closed at birth")
	}
	for _, m := range []int{1, 0} {
		if err := b.Close(m); err != nil {
			t.Fatal(err)
		}
	}
	if b.ClosedBy() != 1 {
		t.Fatalf("closed by %d, want the first, 1", b.ClosedBy())
	}
	mustMark(t, b, 0, s, g, Closed)
	mustPublish(t, b, []byte("late"), false)
	for m := range 2 {
		if b.Drained(m) {
			t.Fatalf("reader %d is drained before it has read the last record", m)
		}
		mustNext(t, b, m, 1)
		if !b.Drained(m) {
			t.Fatalf("reader %d is not drained", m)
		}
		mustNext(t, b, m, 0)
	}
}

func TestLockOfADeadMemberEndsInAnError(t *testing.T) {
	b := mustNew(t, Standard(3, 3, 2))
	s, g := mustAcquire(t, b)
	mustPublish(t, b, nil, true)
	dead := errors.New("rank 2 was killed")
	asked := 0
	b.SetStop(func() error {
		if asked++; asked > 2 {
			return dead
		}
		return nil
	})
	if err := b.lock(2); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mark(0, s, g); !errors.Is(err, dead) {
		t.Errorf("Mark: %v", err)
	}
	if _, err := b.Next(1); !errors.Is(err, dead) {
		t.Errorf("Next: %v", err)
	}
	if err := b.Close(0); !errors.Is(err, dead) {
		t.Errorf("Close: %v", err)
	}
	b.regs.lock.Store(77)
	if _, err := b.Mark(0, s, g); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Mark with an impossible holder: %v", err)
	}
}

func TestAttach(t *testing.T) {
	c := Standard(2, 2, 4)
	mem := make([]byte, Bytes(c)+64)
	mem = mem[-int(addr(mem))&63:]
	if _, err := Attach(mem, c); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("attached to a region that nobody formatted: %v", err)
	}
	a, err := Format(mem, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Format(mem, c); err == nil {
		t.Fatal("formatted twice")
	}
	other := c
	other.Cards++
	if _, err := Attach(append(mem, make([]byte, 4096)...), other); err == nil {
		t.Fatal("attached with another config")
	}
	if _, err := Attach(mem[:Bytes(c)-1], c); err == nil {
		t.Fatal("attached to a region that is too small")
	}
	if _, err := Attach(mem[8:], c); err == nil {
		t.Fatal("attached to a region that is not aligned")
	}
	b, err := Attach(mem, c)
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, a, []byte("x"), true)
	mustNext(t, b, 1, 1)
	mustNext(t, a, 0, 1)
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{},
		{Members: 2, Readers: 3, Cards: 1, LogBytes: 4096, MailboxBytes: 4096},
		{Members: 2, Readers: 2, Cards: 0, LogBytes: 4096, MailboxBytes: 4096},
		{Members: 2, Readers: 2, Cards: 512, LogBytes: 4096, MailboxBytes: 4096}, // no room beside the reserve
		{Members: 2, Readers: 2, Cards: 1, LogBytes: 4095, MailboxBytes: 4096},
		{Members: 2, Readers: 2, Cards: 1, LogBytes: 4096, MailboxBytes: 0},
	} {
		if _, err := NewPrivate(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestMarkAndNextAllocateNothing(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 4))
	s, g := mustAcquire(t, b)
	step := func() {
		mustMark(t, b, 0, s, g, Marked)
		mustMark(t, b, 1, s, g, Completed)
		mustNext(t, b, 0, 1)
		mustNext(t, b, 1, 1)
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func BenchmarkMarkNext(bm *testing.B) {
	b := mustNew(bm, Standard(2, 2, 1024))
	s, g := mustAcquire(bm, b)
	bm.ReportAllocs()
	for bm.Loop() {
		b.Mark(0, s, g)
		b.Mark(1, s, g)
		b.Next(0)
		b.Next(1)
	}
}

// A log that has been closed no longer changes, whatever happens to cards.
func TestNothingIsAnnouncedAfterClose(t *testing.T) {
	c := Standard(2, 1, 4)
	c.Announce = true
	b := mustNew(t, c)
	card, gen := mustAcquire(t, b)
	mustAcquire(t, b)
	mustMark(t, b, 1, card, gen, Marked)
	if err := b.Close(0); err != nil {
		t.Fatal(err)
	}
	if !b.Drained(0) {
		t.Fatal("an empty log is not drained")
	}
	if marked, ok, err := b.Retire(card); err != nil || !ok || !slices.Equal(marked, []int{1}) {
		t.Fatalf("Retire = %v, %v, %v", marked, ok, err)
	}
	for range 4 {
		mustAcquire(t, b) // takes the other card away, too
	}
	if !b.Drained(0) {
		t.Error("the closed log has grown")
	}
	mustNext(t, b, 0, 0)
}
