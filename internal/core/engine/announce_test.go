package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// markCounter counts the marks of either kind.
type markCounter struct {
	transport.Board
	marks, last atomic.Int32
}

func (b *markCounter) Mark(card, gen uint32) bool {
	b.marks.Add(1)
	return b.Board.Mark(card, gen)
}

func (b *markCounter) MarkLast(card, gen uint32) bool {
	b.last.Add(1)
	return b.Board.MarkLast(card, gen)
}

// Only the mark of an operation that its caller waits for at once, alone, may end a batch: others could fuse with it.
func TestOnlyALonelyWaiterEndsTheBatch(t *testing.T) {
	for name, test := range map[string]struct {
		cycle    time.Duration
		wait     bool // the caller waits at once
		together int  // operations that are pending together
		ends     int32
	}{
		"waits":       {wait: true, together: 1, ends: 1},
		"goes on":     {wait: false, together: 1},
		"with others": {wait: true, together: 3, ends: 1}, // the first one is alone when it comes
		"with cycles": {cycle: time.Millisecond, wait: true, together: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &markCounter{}
			n := &changedNetwork{inproc.NewWorld(1, inproc.Options{Shared: true})[0], func(l *transport.Lane) {
				b.Board, l.Board = l.Board, b
			}}
			e, failure := New(n, Options{Size: 1, CacheCapacity: 64, FusionThreshold: 1 << 20, CycleTime: test.cycle})
			if failure != nil {
				t.Fatal(failure)
			}
			defer e.Shutdown(limit)
			names := []string{"a", "b", "c"}[:test.together]
			round := func() {
				var entries []*Entry
				for _, name := range names {
					op := sum(name, floats(1))
					op.WillWait = test.wait
					en, err := e.Enqueue(op)
					if err != nil {
						t.Fatal(err)
					}
					entries = append(entries, en)
				}
				for _, en := range entries {
					if !e.Wait(en, limit) || en.Err() != nil {
						t.Fatal(en.Err())
					}
					en.Release()
				}
			}
			round()
			round() // a name gets its card the second time
			b.marks.Store(0)
			b.last.Store(0)
			round()
			if n := b.last.Load(); n != test.ends || b.marks.Load() != int32(test.together)-n {
				t.Errorf("%d marks end a batch, %d do not; want %d of %d", n, b.marks.Load(), test.ends, test.together)
			}
		})
	}
}
