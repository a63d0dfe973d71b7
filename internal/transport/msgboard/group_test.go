package msgboard

import (
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/transport"
)

func acquireGroup(t *testing.T, l *link, n int) []transport.Mark {
	t.Helper()
	group := make([]transport.Mark, n)
	for i := range group {
		group[i].Slot, group[i].Gen = acquire(t, l)
	}
	return group
}

// The marks of a group travel in one frame and are published in one batch, in
// the order of who completes them.
func TestAGroupIsOneFrameAndOneBatch(t *testing.T) {
	l := newLink(t, 3, 8)
	group := acquireGroup(t, l, 4)
	for m, b := range l.boards {
		if m == 2 {
			slices.Reverse(group)
		}
		if !b.MarkGroup(group) {
			t.Fatalf("member %d: refused", m)
		}
		if n := len(l.queues[[2]int{m, 0}]); m > 0 && n != 1 {
			t.Fatalf("member %d sends %d frames", m, n)
		}
		if l.boards[0].Next() != nil {
			t.Fatalf("published although member 2 has not marked")
		}
		l.deliverAll()
	}
	for m, b := range l.boards {
		records := b.Next()
		l.deliverAll()
		if len(records) != len(group) {
			t.Fatalf("member %d: %v, want the %d slots", m, records, len(group))
		}
		for i, r := range records {
			if r.Kind != transport.RecordSlot || r.Slot != group[i].Slot {
				t.Errorf("member %d: record %d is %v, want slot %d", m, i, r, group[i].Slot)
			}
		}
	}
}

// A group of which one slot has been retired comes back as a whole, by its
// first slot, and none of the others is marked.
func TestAStaleGroupComesBackOnce(t *testing.T) {
	for retired := range 3 {
		l := newLink(t, 2, 8)
		group := acquireGroup(t, l, 3)
		l.boards[1].MarkGroup(group) // under way while the coordinator retires
		l.boards[0].Retire(group[retired].Slot)
		l.deliverAll()
		var stale []transport.Mark
		l.boards[1].Stale(func(slot, gen uint32) { stale = append(stale, transport.Mark{Slot: slot, Gen: gen}) })
		if !slices.Equal(stale, group[:1]) {
			t.Errorf("slot %d retired: stale %v, want %v", retired, stale, group[:1])
		}
		for _, m := range group {
			if marked := l.boards[0].Marked(m.Slot); len(marked) > 0 {
				t.Errorf("slot %d retired: slot %d is marked by %v", retired, m.Slot, marked)
			}
		}
		if l.boards[0].MarkGroup(group) {
			t.Error("the coordinator's own marks of a retired slot are believed")
		}
	}
}

func TestBrokenGroupFrames(t *testing.T) {
	whole := slices.Clip(appendPair(nil, kindMark, 0, 1))
	for want, frame := range map[string][]byte{
		"wrong shape": append(whole, 1, 2, 3),
		"slot 4 of 4": append(whole, 4, 0, 0, 0, 1, 0, 0, 0),
		"of 41 bytes": append(whole, make([]byte, 4*8)...), // five marks of four slots
	} {
		l := newLink(t, 2, 4)
		acquire(t, l)
		if err := l.boards[0].Receive(1, slices.Clone(frame)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if marked := l.boards[0].Marked(0); len(marked) > 0 {
			t.Errorf("%s: marked by %v", want, marked)
		}
	}
}
