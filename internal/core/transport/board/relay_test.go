package board

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
)

func relayTo(readers int) Config {
	return Config{Members: readers, Readers: readers, Posters: 1, Cards: 4, LogBytes: 256, MailboxBytes: MinMailbox,
		Closers: 9}
}

// A batch that has been relayed is one whole batch for each reader, however it reads.
func TestRelayKeepsBatches(t *testing.T) {
	b := mustNew(t, relayTo(2))
	batches := [][]transport.Record{
		{{Kind: transport.RecordCard, Card: 3, Gen: 7}, {Kind: transport.RecordRetired, Card: 3, Gen: 7}},
		{{Kind: transport.RecordResponse, Payload: []byte("response")}},
		{{Kind: transport.RecordCard, Card: 0, Gen: 1}},
	}
	relay := func(batch []transport.Record) {
		t.Helper()
		if ok, err := b.Relay(batch); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	read := func(batches ...[]transport.Record) {
		t.Helper()
		for r := range 2 {
			for _, want := range batches {
				if got := mustNext(t, b, r, len(want)); !reflect.DeepEqual(slices.Clone(got), want) {
					t.Fatalf("reader %d: %v, want %v", r, got, want)
				}
			}
			mustNext(t, b, r, 0)
		}
	}
	for range 10 { // many times round the ring
		for _, batch := range batches {
			relay(batch)
			read(batch)
		}
		relay(batches[0])
		read(batches[0])
		relay(batches[1])
		relay(batches[2])
		read(batches[1:]...) // the readers find two batches
	}
}

// A batch waits until the slowest reader has read, and then member 0 is woken.
func TestRelayWaitsForRoom(t *testing.T) {
	b := mustNew(t, relayTo(2))
	woken := 0
	b.SetWake(func(m int) {
		if m == 0 {
			woken++
		}
	})
	batch := []transport.Record{{Kind: transport.RecordResponse, Payload: make([]byte, 100)}}
	n := 0
	for {
		ok, err := b.Relay(batch)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		n++
	}
	if n != 2 {
		t.Fatalf("%d batches of 112 bytes in 256", n)
	}
	mustNext(t, b, 0, 1)
	if ok, _ := b.Relay(batch); ok {
		t.Fatal("relayed over what reader 1 has not read")
	}
	woken = 0
	mustNext(t, b, 1, 1)
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	if ok, err := b.Relay(batch); !ok || err != nil {
		t.Errorf("no room: %v", err)
	}
	if ok, err := b.Relay([]transport.Record{{Kind: transport.RecordResponse, Payload: make([]byte, 300)}}); ok ||
		err == nil {
		t.Error("a batch longer than the log is not refused")
	}
	if ok, err := b.Relay(nil); !ok || err != nil {
		t.Errorf("an empty batch: %v, %v", ok, err)
	}
}

// End closes the log for readers that have read everything, in the name of any member of the whole lane.
func TestEnd(t *testing.T) {
	b := mustNew(t, relayTo(1))
	if _, err := b.Relay([]transport.Record{{Kind: transport.RecordCard, Card: 1, Gen: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{-1, 9} {
		if b.End(by) == nil {
			t.Errorf("closed by %d of 9", by)
		}
	}
	if b.ClosedBy() != -1 || b.Drained(0) {
		t.Fatal("closed by nobody")
	}
	if err := b.End(8); err != nil {
		t.Fatal(err)
	}
	if b.End(2); b.ClosedBy() != 8 {
		t.Errorf("closed by %d, want the first, 8", b.ClosedBy())
	}
	if b.Drained(0) {
		t.Error("drained before all is read")
	}
	mustNext(t, b, 0, 1)
	if !b.Drained(0) {
		t.Error("not drained")
	}
}

// On a board that learns, the first mark of a generation begins it. Forget ends the generation and all earlier ones,
// also if it comes before any mark.
func TestForget(t *testing.T) {
	c := small(2, 4)
	c.Learn = true
	b := mustNew(t, c)
	forget := func(card, gen uint32) {
		t.Helper()
		if err := b.Forget(card, gen); err != nil {
			t.Fatal(err)
		}
	}
	mustMark(t, b, 0, 1, 5, Marked)
	mustMark(t, b, 1, 1, 4, Stale)
	forget(1, 4) // ended long ago
	mustMark(t, b, 1, 1, 5, Completed)
	mustMark(t, b, 0, 1, 5, Marked)
	forget(1, 5)
	mustMark(t, b, 1, 1, 5, Stale)
	if marked, err := b.Marked(1); err != nil || marked != nil {
		t.Errorf("marked by %v, %v", marked, err)
	}
	mustMark(t, b, 1, 1, 6, Marked)
	mustMark(t, b, 0, 1, 6, Completed)
	forget(2, 3)
	mustMark(t, b, 0, 2, 3, Stale)
	mustMark(t, b, 0, 2, 4, Marked)
	forget(4, 1) // only cards 0 to 3 exist
	mustMark(t, b, 0, 4, 1, Stale)
	// Generations wrap around.
	mustMark(t, b, 0, 3, 1<<31-2, Marked)
	forget(3, 1<<32-2)
	mustMark(t, b, 0, 3, 1<<32-2, Stale)
	mustMark(t, b, 0, 3, 1, Marked)
	mustMark(t, b, 1, 3, 1<<32-1, Stale)
}

// Members without mailboxes take no memory for them, and Post returns an error for these members.
func TestPosters(t *testing.T) {
	c := Standard(9, 1, 4)
	all := Bytes(c)
	c.Posters = 1
	if saved := all - Bytes(c); saved < 8*transport.MaxRecord {
		t.Errorf("saves %d bytes", saved)
	}
	b := mustNew(t, c)
	if ok, err := b.Post(0, []byte("x")); !ok || err != nil {
		t.Errorf("member 0: %v, %v", ok, err)
	}
	if ok, err := b.Post(1, []byte("x")); ok || err == nil {
		t.Error("member 1 has no mailbox and posts")
	}
	n := 0
	if err := b.TakeRequests(func([]int, []byte) { n++ }); err != nil || n != 1 {
		t.Errorf("%d requests, %v", n, err)
	}
	if c.Posters = 10; c.check() == nil {
		t.Error("more posters than members")
	}
}
