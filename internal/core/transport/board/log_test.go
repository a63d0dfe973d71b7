package board

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// No batch ends between the Responses of one Publish, however early a reader cuts the log.
func TestResponsesPublishedTogetherAreInOneBatch(t *testing.T) {
	const together, times = 7, 3000
	b := mustNew(t, Standard(2, 2, 2))
	var responses [][]byte
	for i := range together {
		responses = append(responses, []byte{byte(i)})
	}
	var read atomic.Int64
	var publisher sync.WaitGroup
	defer publisher.Wait()
	publisher.Go(func() {
		for sent := range times {
			for int64(sent)-read.Load() > 10 { // there is always room
				runtime.Gosched()
			}
			n, err := b.Publish(responses...)
			if n != together || err != nil {
				t.Errorf("published %d, %v", n, err)
				read.Store(times) // ends the reader
				return
			}
			b.Next(0)
		}
	})
	for read.Load() < times {
		records, err := b.Next(1)
		if err != nil || len(records)%together != 0 {
			read.Store(times) // ends the publisher
			t.Fatalf("a batch of %d records, %v", len(records), err)
		}
		read.Add(int64(len(records) / together))
	}
}

// A Publish of more than fits publishes the first ones, in order, and asks to be woken.
func TestPublishAsManyAsFit(t *testing.T) {
	b := mustNew(t, small(1, 5))
	woken := 0
	b.SetWake(func(int) { woken++ })
	responses := make([][]byte, 200)
	for i := range responses {
		responses[i] = []byte{byte(i)}
	}
	rounds := 0
	for next := byte(0); len(responses) > 0; rounds++ {
		n, err := b.Publish(responses...)
		if n == 0 || err != nil {
			t.Fatalf("published %d, %v", n, err)
		}
		responses = responses[n:]
		for _, r := range mustNext(t, b, 0, n) {
			if r.Payload[0] != next {
				t.Fatalf("response %d instead of %d", r.Payload[0], next)
			}
			next++
		}
	}
	if rounds < 2 || woken != rounds-1 {
		t.Errorf("woken %d times in %d rounds", woken, rounds)
	}
	if n, err := b.Publish([]byte("fits"), make([]byte, 1<<20)); n != 0 || err == nil {
		t.Errorf("published %d, %v, of which one can never fit", n, err)
	}
}

// MarkLast ends the batch if it completes the card: what comes before is in the batch, and what comes later in the next
// one.
func TestMarkLastEndsTheBatch(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 8))
	group := acquireGroup(t, b, 3)
	last := func(member, i int, want Result) {
		t.Helper()
		if r, err := b.MarkLast(member, group[i].Card, group[i].Gen); r != want || err != nil {
			t.Fatalf("%v, %v, want %v", r, err, want)
		}
	}
	mustPublish(t, b, []byte("before"), true)
	last(0, 0, Marked) // completes nothing, and ends no batch
	mustMark(t, b, 0, group[1].Card, group[1].Gen, Marked)
	mustMark(t, b, 1, group[1].Card, group[1].Gen, Completed)
	last(1, 0, Completed)
	mustPublish(t, b, []byte("after"), true)
	last(0, 2, Marked)
	for reader := range 2 {
		records := mustNext(t, b, reader, 3)
		if string(records[0].Payload) != "before" || records[1].Card != group[1].Card ||
			records[2].Card != group[0].Card {
			t.Errorf("reader %d: %v", reader, records)
		}
		if records := mustNext(t, b, reader, 1); string(records[0].Payload) != "after" {
			t.Errorf("reader %d: %v", reader, records)
		}
		mustNext(t, b, reader, 0)
	}
	last(1, 2, Completed)
	for reader := range 2 {
		mustNext(t, b, reader, 1)
	}
	if r, err := b.MarkLast(0, group[0].Card, group[0].Gen+1); r != Stale || err != nil {
		t.Errorf("%v, %v, want stale", r, err)
	}
}
