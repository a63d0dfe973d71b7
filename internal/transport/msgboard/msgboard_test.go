package msgboard

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/transport"
)

// acquire gives all members a slot without a Response, which is all that Mark needs.
func acquire(t *testing.T, l *link) (slot, gen uint32) {
	t.Helper()
	slot, gen, ok := l.boards[0].Acquire()
	if !ok {
		t.Fatal("no slot")
	}
	return slot, gen
}

func TestMarkOfARetiredSlotComesBack(t *testing.T) {
	l := newLink(t, 3, 4)
	slot, gen := acquire(t, l)
	l.boards[1].Mark(slot, gen)
	l.deliverAll()
	l.boards[2].Mark(slot, gen) // under way while the coordinator retires
	marked, ok := l.boards[0].Retire(slot)
	if !ok || len(marked) != 1 || marked[0] != 1 {
		t.Fatalf("retire: marked %v, %v", marked, ok)
	}
	l.deliverAll()
	for m, want := range []int{0, 0, 1} {
		n := 0
		l.boards[m].Stale(func(s, g uint32) {
			if s != slot || g != gen {
				t.Errorf("stale mark of slot %d generation %d", s, g)
			}
			n++
		})
		if n != want {
			t.Errorf("member %d has %d stale marks, want %d", m, n, want)
		}
		l.boards[m].Stale(func(uint32, uint32) { t.Error("a stale mark is told twice") })
	}
	if l.boards[0].Mark(slot, gen) {
		t.Error("the coordinator's own mark of a retired slot is believed")
	}
}

// A member whose requests nobody takes gets no room, and then room again.
func TestRequestWindow(t *testing.T) {
	l := newLink(t, 2, 4)
	request := make([]byte, transport.MaxRecord)
	for _, m := range []int{0, 1} {
		posted, taken := 0, 0
		for round := range 3 {
			before := posted
			for l.boards[m].Post(request) {
				if posted++; posted > 100 {
					t.Fatal("no limit")
				}
			}
			if posted == before {
				t.Fatalf("member %d has no room in round %d", m, round)
			}
			l.deliverAll()
			l.boards[0].Requests(func(from []int, p []byte) {
				if from[0] != m || len(p) != len(request) {
					t.Errorf("request of %d bytes from %v", len(p), from)
				}
				taken++
			})
			l.deliverAll()
		}
		if taken != posted {
			t.Errorf("member %d posted %d requests, %d came", m, posted, taken)
		}
	}
}

// A member that takes no batches holds the coordinator back, and no one
// else's queue grows meanwhile.
func TestBatchWindow(t *testing.T) {
	l := newLink(t, 3, 4)
	payload := make([]byte, transport.MaxRecord)
	cut := 0
	cutAll := func() {
		for range 100 {
			l.boards[0].Publish(payload)
			if l.boards[0].Next() == nil {
				return
			}
			cut++
			l.deliverAll()
			for l.boards[1].Next() != nil {
			}
			l.deliverAll()
		}
		t.Fatal("the coordinator never waits for member 2")
	}
	cutAll()
	if cut*len(payload) < batchWindow {
		t.Fatalf("held back after %d batches", cut)
	}
	read := 0
	for l.boards[2].Next() != nil {
		read++
	}
	if read != cut {
		t.Fatalf("member 2 read %d of %d batches", read, cut)
	}
	l.deliverAll()
	if l.boards[0].Next() == nil {
		t.Fatal("held back after credit")
	}
}

func TestWhatWasPublishedBeforeCloseIsRead(t *testing.T) {
	l := newLink(t, 2, 4)
	l.boards[0].Publish([]byte("last"))
	l.boards[1].Close()
	l.deliverAll()
	if l.boards[0].ClosedBy() != 1 {
		t.Fatalf("closed by %d", l.boards[0].ClosedBy())
	}
	if l.boards[0].Publish([]byte("too late")) {
		t.Error("published after close")
	}
	for m, b := range l.boards {
		if b.Closed() {
			t.Errorf("member %d: closed before the log is read", m)
		}
		r := b.Next()
		l.deliverAll()
		if len(r) != 1 || string(r[0].Payload) != "last" {
			t.Errorf("member %d: records %v", m, r)
		}
		if b.Next() != nil || !b.Closed() || b.ClosedBy() != 1 {
			t.Errorf("member %d: closed %v by %d", m, b.Closed(), b.ClosedBy())
		}
	}
}

// Closed must reach the others although the driver of member 0 only asks Closed.
func TestClosedWithoutNext(t *testing.T) {
	l := newLink(t, 2, 4)
	l.boards[0].Close()
	if !l.boards[0].Closed() {
		t.Fatal("an empty log that is closed is at its end")
	}
	l.deliverAll()
	l.boards[1].Next()
	if !l.boards[1].Closed() {
		t.Fatal("member 1 does not know")
	}
}

func TestBrokenProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		to, from int
		frame    []byte
		want     string
	}{
		"empty":                    {0, 1, nil, "wrong shape"},
		"unknown kind":             {0, 1, []byte{99}, "unknown (99)"},
		"short mark":               {0, 1, []byte{1, 0, 0}, "wrong shape"},
		"slot out of range":        {0, 1, appendPair(nil, kindMark, 4, 1), "slot 4 of 4"},
		"batch to the coordinator": {0, 1, []byte{4, 1, 0, 0, 0, 0}, "batch frame from member 1"},
		"credit not owed":          {0, 1, appendNumber(nil, kindCredit, 1), "credit for 1 bytes"},
		"stranger":                 {0, 7, appendPair(nil, kindMark, 0, 1), "member 7"},
		"not the coordinator":      {2, 1, []byte{4}, "member 1"},
		"mark to a member":         {1, 0, appendPair(nil, kindMark, 0, 1), "mark frame"},
		"empty batch":              {1, 0, []byte{4}, "empty batch"},
		"record beyond the end":    {1, 0, []byte{4, 2, 200, 0, 0, 0, 1}, "wrong shape"},
		"record of a wrong slot":   {1, 0, []byte{4, 1, 4, 0, 0, 0}, "slot 4 of 4"},
		"closed by nobody":         {1, 0, appendNumber(nil, kindClosed, 3), "member 3 of 3"},
		"member's credit not owed": {1, 0, appendNumber(nil, kindCredit, 1), "credit for 1 bytes"},
	} {
		err := newLink(t, 3, 4).boards[test.to].Receive(test.from, test.frame)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestMarkingTwiceIsAnError(t *testing.T) {
	l := newLink(t, 2, 4)
	slot, gen := acquire(t, l)
	frame := appendPair(nil, kindMark, slot, gen)
	if err := l.boards[0].Receive(1, frame); err != nil {
		t.Fatal(err)
	}
	if err := l.boards[0].Receive(1, frame); err == nil {
		t.Fatal("a second mark passes")
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	direct := &directPipe{boards: make([]Board, 2)}
	for m := range direct.boards {
		direct.boards[m], _ = New(Config{Member: m, Size: 2, Slots: 4, Pipe: pipeFrom{direct, m}, Ring: func() {},
			Abort: func(err error) { t.Fatal(err) }})
	}
	slot, gen, _ := direct.boards[0].Acquire()
	if n := testing.AllocsPerRun(1000, func() {
		direct.boards[0].Mark(slot, gen)
		direct.boards[1].Mark(slot, gen)
		direct.boards[0].Requests(func([]int, []byte) {})
		for _, b := range direct.boards {
			if r := b.Next(); len(r) != 1 || r[0].Slot != slot {
				t.Fatalf("records %v", r)
			}
			b.Stale(func(uint32, uint32) {})
		}
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

// directPipe delivers at once, which does where no answer comes.
type directPipe struct{ boards []Board }

type pipeFrom struct {
	*directPipe
	from int
}

func (p pipeFrom) Send(to int, frame []byte) {
	if err := p.boards[to].Receive(p.from, frame); err != nil {
		panic(err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(true, appendPair(nil, kindMark, 0, 1))
	f.Add(true, append([]byte{byte(kindRequest)}, "request"...))
	f.Add(true, []byte{byte(kindClose)})
	f.Add(false, appendRecord(appendRecord([]byte{byte(kindBatch)}, transport.Record{Kind: transport.RecordSlot, Slot: 1}),
		transport.Record{Kind: transport.RecordResponse, Payload: []byte("response")}))
	f.Add(false, appendNumber(nil, kindClosed, 1))
	f.Add(false, appendPair(nil, kindStale, 1, 1))
	f.Fuzz(func(t *testing.T, toCoordinator bool, frame []byte) {
		direct := &link{t: t, queues: map[[2]int][][]byte{}, limit: QueueLimit(4)}
		to, from := 1, 0
		if toCoordinator {
			to, from = 0, 1
		}
		b, err := New(Config{Member: to, Size: 3, Slots: 4, Pipe: end{direct, to}, Ring: func() {}, Abort: func(err error) { t.Fatal(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if b.Receive(from, frame) != nil {
			return
		}
		// What was taken must also be readable, and be what was sent.
		var again []byte
		for records := b.Next(); records != nil; records = b.Next() {
			again = append(again, byte(kindBatch))
			for _, r := range records {
				again = appendRecord(again, r)
			}
		}
		if !toCoordinator && kind(frame[0]) == kindBatch && !bytes.Equal(again, frame) {
			t.Errorf("sent %x, read %x", frame, again)
		}
		b.Stale(func(uint32, uint32) {})
		b.Closed()
		if toCoordinator {
			b.Requests(func(from []int, p []byte) {
				if !bytes.Equal(p, frame[1:]) {
					t.Errorf("sent %x, read %x", frame[1:], p)
				}
			})
		}
	})
}

// What is news for a driver must wake it, whoever brings it.
func TestNewsRings(t *testing.T) {
	l := newLink(t, 2, 4)
	coordinator, other := l.boards[0], l.boards[1]
	slot, gen, _ := coordinator.Acquire()
	for _, step := range []struct {
		name string
		do   func()
		want [2]bool // who must be woken
	}{
		{"own request", func() { coordinator.Post([]byte("x")) }, [2]bool{true, false}},
		{"other's request", func() { other.Post([]byte("x")) }, [2]bool{true, false}},
		{"completion by another", func() { coordinator.Mark(slot, gen); other.Mark(slot, gen) }, [2]bool{true, false}},
		{"batch", func() { coordinator.Next() }, [2]bool{false, true}},
		{"own completion", func() { other.Mark(slot, gen); coordinator.Mark(slot, gen) }, [2]bool{true, false}},
		{"stale mark", func() { coordinator.Retire(slot); other.Mark(slot, gen) }, [2]bool{false, true}},
		{"other's close", func() { other.Close() }, [2]bool{true, false}},
		{"the log's end", func() { coordinator.Next(); coordinator.Next() }, [2]bool{false, true}},
	} {
		l.deliverAll()
		clear(l.rings)
		step.do()
		l.deliverAll()
		for m, want := range step.want {
			if want && l.rings[m] == 0 {
				t.Errorf("%s: member %d sleeps on", step.name, m)
			}
		}
	}
}
