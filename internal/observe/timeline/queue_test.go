package timeline

import (
	"runtime"
	"sync"
	"testing"
)

// TestQueueKeepsEachProducersOrder lets producers race through a queue that is much smaller than their events; they try
// again when it is full. Each event must come out once, and those of one producer in order.
func TestQueueKeepsEachProducersOrder(t *testing.T) {
	const producers, each = 4, 5000
	q := newQueue(16)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				c, pos := q.claim(rankReady)
				for ; c == nil; c, pos = q.claim(rankReady) {
					runtime.Gosched()
				}
				c.at, c.rank = int64(i), int32(p)
				c.publish(pos)
			}
		})
	}
	var next [producers]int64
	for n := 0; n < producers*each; {
		e := q.front()
		if e == nil {
			q.release()
			runtime.Gosched()
			continue
		}
		if e.at != next[e.rank] {
			t.Fatalf("producer %d: event %d, want %d", e.rank, e.at, next[e.rank])
		}
		next[e.rank]++
		q.pop()
		n++
	}
	wg.Wait()
	if q.front() != nil || q.claimed() != 0 {
		t.Error("there is more in the queue than was put")
	}
}

// TestQueueKeepsRoomForEnds fills the queue: the last eighth takes only events that end a phase.
func TestQueueKeepsRoomForEnds(t *testing.T) {
	const size = 64
	fill := func(q *queue, k kind) (n int) {
		for {
			c, pos := q.claim(k)
			if c == nil {
				return n
			}
			c.name = "tensor"
			c.publish(pos)
			n++
		}
	}
	q := newQueue(size)
	for round := range 3 {
		if n := fill(q, activityStart); n != size-size/8 {
			t.Errorf("round %d: room for %d starts, want %d", round, n, size-size/8)
		}
		if n := fill(q, opStart); n != 0 {
			t.Errorf("round %d: room for %d more starts", round, n)
		}
		if n := fill(q, activityEnd); n != size/8 {
			t.Errorf("round %d: room for %d ends, want %d", round, n, size/8)
		}
		for q.front() != nil {
			q.pop()
		}
		q.release()
	}
	for i := range q.cells {
		if q.cells[i].name != "" {
			t.Fatalf("cell %d keeps a name alive", i)
		}
	}
}

// TestQueueWaitsForASlowProducer: an event that is claimed and not yet published delays the consumer, not the
// producers.
func TestQueueWaitsForASlowProducer(t *testing.T) {
	q := newQueue(8)
	slow, slowPos := q.claim(rankReady)
	fast, fastPos := q.claim(rankReady)
	fast.at = 2
	fast.publish(fastPos)
	if q.front() != nil {
		t.Fatal("the second event has overtaken the first")
	}
	if q.claimed() != 2 {
		t.Errorf("%d claimed", q.claimed())
	}
	slow.at = 1
	slow.publish(slowPos)
	for want := int64(1); want <= 2; want++ {
		if e := q.front(); e == nil || e.at != want {
			t.Fatalf("event %v, want %d", e, want)
		}
		q.pop()
	}
}
