package treeboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// deep is a tree of three levels: host 1 has a member besides its leader, and the last host is below host 1.
func deep() [][]int {
	hosts := [][]int{{0, 2}, {1, 3}}
	for m := range Arity {
		hosts = append(hosts, []int{4 + m})
	}
	return hosts
}

// below1 is the leader of the host below host 1 in deep.
const below1 = 3 + Arity

// acquire gives all members a card without a Response, because Mark needs no more.
func acquire(t *testing.T, l *link) (card, gen uint32) {
	t.Helper()
	card, gen, ok := l.boards[0].Coordination().Acquire()
	if !ok {
		t.Fatal("no card")
	}
	return card, gen
}

func acquireGroup(t *testing.T, l *link, n int) []transport.Mark {
	t.Helper()
	group := make([]transport.Mark, n)
	for i := range group {
		group[i].Card, group[i].Gen = acquire(t, l)
	}
	return group
}

// read lets every member read all batches that it can.
func (l *link) read() map[int][]transport.Record {
	all := map[int][]transport.Record{}
	for range 3 {
		for m, b := range l.boards {
			for r := nextBatch(b); r != nil; r = nextBatch(b) {
				all[m] = append(all[m], slices.Clone(r)...)
			}
		}
		l.poll()
	}
	return all
}

func stale(b Board) (marks []transport.Mark) {
	b.TakeStale(func(card, gen uint32) { marks = append(marks, transport.Mark{Card: card, Gen: gen}) })
	return marks
}

// A mark that is anywhere on its way when its card is retired comes back to its member, once: by Retire on the root's
// host, by the log elsewhere.
func TestMarkOfARetiredCardComesBack(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	card, gen := acquire(t, l)
	mark := transport.Mark{Card: card, Gen: gen}
	for _, m := range []int{2, 3, below1, 4} {
		if !l.boards[m].Mark(card, gen) {
			t.Fatalf("member %d: refused", m)
		}
		if m == below1 {
			l.poll() // the marks so far have moved as far as they can; member 4's is still under way
		}
	}
	marked, ok := l.boards[0].Coordination().Retire(card)
	if !ok || !slices.Equal(marked, []int{2}) {
		t.Fatalf("retire: marked %v, %v", marked, ok)
	}
	l.read()
	for m, b := range l.boards {
		var want []transport.Mark
		if m == 3 || m == below1 || m == 4 {
			want = []transport.Mark{mark}
		}
		if got := stale(b); !slices.Equal(got, want) {
			t.Errorf("member %d: stale marks %v, want %v", m, got, want)
		}
		if got := stale(b); got != nil {
			t.Errorf("member %d is told twice", m)
		}
		if b.Mark(card, gen) {
			t.Errorf("member %d: a mark of a retired card is believed", m)
		}
	}
}

// A leader's own board does not say that the log is closed before the leader has told the leaders below. Its driver may
// then close the network, which drops later frames.
func TestTheEndIsToldBelowFirst(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	told := 0
	l.sends = func(from int, frame []byte) {
		if leads, is := l.boards[from].(*relay); is && kind(frame[0]) == kindClosed {
			if told++; leads.Closed() {
				t.Errorf("member %d could have left before it told the end", from)
			}
		}
	}
	l.boards[0].Close()
	l.read()
	if told != 1 {
		t.Errorf("the end was passed on %d times", told)
	}
	for m, b := range l.boards {
		if !b.Closed() {
			t.Errorf("member %d has not heard of the end", m)
		}
	}
}

// Questions change nothing for others, however often they are asked. A frame under way moves on only when a driver
// gives the board a turn.
func TestQuestionsPassNothingOn(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	card, gen := acquire(t, l)
	sent := 0
	l.sends = func(int, []byte) { sent++ }
	ask := func() {
		for range 10 {
			for m, b := range l.boards {
				b.TakeStale(func(uint32, uint32) { t.Errorf("member %d: a mark is stale", m) })
				if records := b.Next(); records != nil {
					t.Errorf("member %d reads %v before it is cut", m, records)
				}
				b.Closed()
				b.ClosedBy()
			}
		}
		if sent > 0 {
			t.Fatalf("%d frames were sent", sent)
		}
	}
	for m, b := range l.boards {
		if !b.Mark(card, gen) || !b.Post([]byte("request")) {
			t.Fatalf("member %d: no room", m)
		}
	}
	clear(l.rings)
	ask()
	l.poll() // to the root's log, where it stays
	if sent == 0 {
		t.Fatal("nothing was under way")
	}
	l.boards[0].Close()
	clear(l.rings)
	sent = 0
	ask()
	for m, n := range l.rings {
		if n > 0 {
			t.Errorf("questions wake member %d", m)
		}
	}
	if l.boards[0].Poller().Cut(); sent == 0 {
		t.Error("nothing waited to be cut")
	}
}

// The marks of a group travel in one frame and are published in one batch, in the order of the member that completes
// them.
func TestAGroupIsOneFrameAndOneBatch(t *testing.T) {
	l := newLink(t, deep(), 8, nil)
	group := acquireGroup(t, l, 4)
	for m, b := range l.boards {
		if !b.MarkGroup(group) {
			t.Fatalf("member %d: refused", m)
		}
		turn(b)
		if nextBatch(l.boards[0]) != nil {
			t.Fatal("published although marks are missing")
		}
		if n := len(l.queues[[2]int{m, 0}]); m > 3 && m < below1 && n != 1 {
			t.Fatalf("member %d sends %d frames", m, n)
		}
		if m != below1 {
			l.poll()
		}
	}
	l.poll()
	for m, records := range l.read() {
		var cards []transport.Mark
		for _, r := range records {
			cards = append(cards, transport.Mark{Card: r.Card, Gen: r.Gen})
		}
		for i := range cards {
			cards[i].Gen = group[0].Gen
		}
		if len(cards) != len(group) || cards[0].Card != group[0].Card || cards[3].Card != group[3].Card {
			t.Errorf("member %d: %v, want %v", m, records, group)
		}
	}
}

// If a host completes cards of a group in one step, each host up to the root marks them in one step. If one of the
// cards has been retired meanwhile, no host above marks any of them.
func TestAGroupStaysWholeOnItsWay(t *testing.T) {
	for _, m := range []int{4, below1} { // below the root, and below another leader
		for retired := range 3 {
			l := newLink(t, deep(), 8, nil)
			group := acquireGroup(t, l, 3)
			for other, b := range l.boards {
				if other != m && other != 0 && !b.MarkGroup(group) {
					t.Fatalf("member %d: refused", other)
				}
			}
			l.poll()
			l.boards[m].MarkGroup(group)
			if _, ok := l.boards[0].Coordination().Retire(group[retired].Card); !ok {
				t.Fatal("not retired")
			}
			l.poll()
			if m == below1 {
				continue // a host below may have marked it before the end came there
			}
			for _, g := range group {
				if marked := l.boards[0].Coordination().Marked(g.Card); slices.Contains(marked, m) {
					t.Errorf("member %d, card %d retired: card %d is marked by %v", m, group[retired].Card,
						g.Card, marked)
				}
			}
		}
	}
}

// The frames chain the marks that were completed together, and no others.
func TestChains(t *testing.T) {
	l := newLink(t, alone(2), 8, nil)
	group := acquireGroup(t, l, 5)
	l.boards[1].MarkGroup(group[:3])
	l.boards[1].Mark(group[3].Card, group[3].Gen)
	l.boards[1].Mark(group[4].Card, group[4].Gen)
	turn(l.boards[1])
	var chains [][]transport.Mark
	for _, frame := range l.queues[[2]int{1, 0}] {
		k, body, err := (&Config{Cards: 8}).split(frame)
		for err == nil && k == kindMark && len(body) > 0 {
			var chain []transport.Mark
			var last uint16
			if chain, last, body, err = cutChain(nil, body, 8); err == nil {
				if last != 1 {
					t.Errorf("%v: member %d was the last", chain, last)
				}
				chains = append(chains, chain)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(chains) != 3 || !slices.Equal(chains[0], group[:3]) || len(chains[1]) != 1 || len(chains[2]) != 1 {
		t.Errorf("chains %v", chains)
	}
}

// All members learn which member marked a card last, wherever that member is in the tree.
func TestLast(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	card, gen := acquire(t, l)
	for last := range l.boards {
		for m := range l.boards {
			if m != last && !l.boards[m].Mark(card, gen) {
				t.Fatalf("member %d: refused", m)
			}
		}
		l.poll()
		l.boards[last].Mark(card, gen)
		l.poll()
		for m, records := range l.read() {
			if len(records) != 1 || l.boards[m].Last(card) != last {
				t.Errorf("member %d: %v, member %d was the last, not %d", m, records, l.boards[m].Last(card), last)
			}
		}
	}
}

// A member whose Requests nobody takes finds no room, and finds room again when the root takes them.
func TestRequestWindow(t *testing.T) {
	for _, m := range []int{0, 1, 2, 3, below1} {
		t.Run(fmt.Sprintf("member %d", m), func(t *testing.T) {
			l := newLink(t, deep(), 4, nil)
			posted, taken := 0, 0
			for round := range 3 {
				n := fillRequests(t, l, m)
				if n == 0 {
					t.Fatalf("no room in round %d", round)
				}
				posted += n
				taken += takeRequests(t, l, m)
			}
			if taken != posted {
				t.Errorf("posted %d requests, %d came", posted, taken)
			}
		})
	}
}

// The root gives a child credit at its turn, and sends nothing when the coordinator takes the Requests.
func TestTakingRequestsSendsNothing(t *testing.T) {
	l := newLink(t, alone(2), 4, nil)
	down := [2]int{0, 1}
	for range 3 {
		for range requestWindow / 4 / transport.MaxRecord { // a quarter of the window, for which there is credit
			if !l.boards[1].Post(make([]byte, transport.MaxRecord)) {
				t.Fatal("no room")
			}
			turn(l.boards[1])
			l.deliver(1, 0, 1)
		}
		if n := len(l.queues[down]); n != 0 {
			t.Errorf("the root has sent %d frames without a turn", n)
		}
		turn(l.boards[0])
		if n := len(l.queues[down]); n != 1 {
			t.Errorf("the root has sent %d frames at its turn, not one credit", n)
		}
		l.deliver(0, 1, 1)
		taken := 0
		l.boards[0].Coordination().TakeRequests(func([]int, []byte) { taken++ })
		if n := len(l.queues[down]); n != 0 || taken == 0 {
			t.Errorf("the root has sent %d frames while %d requests were taken", n, taken)
		}
	}
}

// fillRequests posts the largest requests until no more fit anywhere on their way.
func fillRequests(t *testing.T, l *link, member int) (posted int) {
	request := make([]byte, transport.MaxRecord)
	for stuck := false; !stuck; l.poll() {
		stuck = true
		for l.boards[member].Post(request) {
			stuck = false
			if posted++; posted > 100 {
				t.Fatal("no limit")
			}
		}
	}
	return posted
}

// takeRequests takes a member's Requests at the root.
func takeRequests(t *testing.T, l *link, member int) (taken int) {
	for more := true; more; l.poll() {
		more = false
		turn(l.boards[0])
		l.boards[0].Coordination().TakeRequests(func(from []int, p []byte) {
			if !slices.Equal(from, []int{member}) || len(p) != transport.MaxRecord {
				t.Errorf("request of %d bytes from %v", len(p), from)
			}
			taken++
			more = true
		})
	}
	return taken

}

// A host that takes no batches holds the root back, and no queue grows without limit meanwhile. It does not help that
// the others read.
func TestBatchWindow(t *testing.T) {
	for _, slow := range []int{2, 3, 4, below1} {
		l := newLink(t, deep(), 4, nil)
		payload := make([]byte, transport.MaxRecord)
		read := make([]int, len(l.boards))
		readAll := func(skip int) (moved bool) {
			for m, b := range l.boards {
				for m != skip && nextBatch(b) != nil {
					read[m]++
					moved = true
				}
			}
			l.poll()
			return moved
		}
		for n := 0; ; n++ {
			for l.boards[0].Coordination().Publish(payload) > 0 {
			}
			if !readAll(slow) {
				break
			}
			if n == 1000 {
				t.Fatalf("the root never waits for member %d", slow)
			}
		}
		if read[0] == 0 {
			t.Fatalf("held back by member %d from the beginning", slow)
		}
		before := read[0]
		for readAll(-1) || l.boards[0].Coordination().Publish(payload) > 0 && read[0] < 2*before {
		}
		if read[0] <= before {
			t.Errorf("held back although member %d has read", slow)
		}
		for m := range read {
			if read[m] != read[0] {
				t.Errorf("member %d has read %d batches, member 0 %d", m, read[m], read[0])
			}
		}
	}
}

func TestWhatWasPublishedBeforeCloseIsRead(t *testing.T) {
	for by := range deep() {
		l := newLink(t, deep(), 4, nil)
		l.boards[0].Coordination().Publish([]byte("last"))
		l.boards[by].Close()
		l.poll()
		if l.boards[0].ClosedBy() != by {
			t.Fatalf("closed by %d, want %d", l.boards[0].ClosedBy(), by)
		}
		if l.boards[0].Coordination().Publish([]byte("too late")) > 0 {
			t.Error("published after close")
		}
		for m, b := range l.boards {
			if b.Closed() {
				t.Errorf("member %d: closed before the log is read", m)
			}
		}
		all := l.read()
		for m, b := range l.boards {
			if r := all[m]; len(r) != 1 || string(r[0].Payload) != "last" {
				t.Errorf("member %d: records %v", m, r)
			}
			if !b.Closed() || b.ClosedBy() != by {
				t.Errorf("member %d: closed %v by %d, want %d", m, b.Closed(), b.ClosedBy(), by)
			}
		}
	}
}

// The end of the log reaches all, although the driver of member 0 reads nothing.
func TestTheEndNeedsNoReader(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	l.boards[0].Close()
	l.boards[0].Poller().Cut()
	if !l.boards[0].Closed() {
		t.Fatal("an empty log that is closed is at its end")
	}
	l.deliverAll()
	for m, b := range l.boards {
		if !b.Closed() {
			t.Errorf("member %d does not know", m)
		}
	}
}

// A member's Close reaches the root by frames alone. Its leader and the leaders between have nothing pending, and
// nobody drives them.
func TestCloseNeedsNoDriver(t *testing.T) {
	hosts := [][]int{{0, 1}, {2, 3}}
	for h := range Arity {
		hosts = append(hosts, []int{4 + 2*h, 5 + 2*h})
	}
	for by := 1; by < 2*len(hosts); by += 2 {
		l := newLink(t, hosts, 4, nil)
		l.boards[by].Close()
		clear(l.rings)
		l.deliverAll()
		if by > 1 && l.boards[0].ClosedBy() != by {
			t.Errorf("member %d has closed the log; for member 0 it was %d", by, l.boards[0].ClosedBy())
		}
		if l.rings[0] == 0 {
			t.Errorf("nobody wakes member 0 when member %d closes the log", by)
		}
		for m := range l.boards {
			l.boards[m].Close() // a later Close sends no call
			if n := len(l.queues[[2]int{m, m &^ 1}]); m != by && n > 0 {
				t.Errorf("member %d calls its leader although the host's board is closed", m)
			}
			if m&^1 == by&^1 {
				break
			}
		}
	}
}

// The Requests that are posted between two turns of a leader travel in one frame.
func TestRequestsShareAFrame(t *testing.T) {
	l := newLink(t, [][]int{{0}, {1, 2}}, 4, nil)
	var want []string
	for i := range 10 {
		m := 1 + i%2
		p := fmt.Sprintf("request %d of %d", i, m)
		if !l.boards[m].Post([]byte(p)) {
			t.Fatal("no room")
		}
		want = append(want, p)
	}
	turn(l.boards[1])
	if n := len(l.queues[[2]int{1, 0}]); n != 1 {
		t.Errorf("%d frames", n)
	}
	l.deliverAll()
	var got []string
	turn(l.boards[0])
	l.boards[0].Coordination().TakeRequests(func(from []int, p []byte) { got = append(got, string(p)) })
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("came: %q", got)
	}
}

// News for a driver must wake it, whichever goroutine brings the news.
func TestNewsRings(t *testing.T) {
	l := newLink(t, [][]int{{0, 1}, {2, 3}}, 4, nil)
	b := l.boards
	card, gen := acquire(t, l)
	markBut := func(last int) {
		l.read()
		for m := range b {
			if m != last {
				b[m].Mark(card, gen)
				l.poll()
			}
		}
		clear(l.rings)
		b[last].Mark(card, gen)
		if l.rings[last] == 0 && last > 1 {
			t.Errorf("the driver of member %d, who has completed its host's marks, sleeps on", last)
		}
		turn(b[last])
	}
	for _, step := range []struct {
		name string
		do   func()
		want []int // the members that must be woken
	}{
		{"own request", func() { b[0].Post([]byte("x")) }, []int{0}},
		{"neighbour's request", func() { b[1].Post([]byte("x")) }, []int{0}},
		{"request for a leader", func() { b[3].Post([]byte("x")) }, []int{2}},
		{"a leader's request", func() { b[2].Post([]byte("x")) }, []int{2}},
		{"what its driver passes on", func() { turn(b[2]) }, []int{0}},
		{"completion by another host", func() { markBut(2) }, []int{0}},
		{"batch", func() { nextBatch(b[0]) }, []int{1, 2, 3}},
		{"completion by a neighbour", func() { markBut(1) }, []int{0}},
		{"batch", func() { l.read() }, []int{1, 2, 3}},
		{"what a leader must pass on", func() { b[2].Mark(card, gen); l.poll(); clear(l.rings); b[3].Mark(card, gen) },
			[]int{2}},
		{"a leader's close", func() { b[2].Close() }, []int{0}},
		{"the log's end", func() { l.read() }, []int{1, 2, 3}},
	} {
		l.deliverAll()
		clear(l.rings)
		step.do()
		l.deliverAll()
		for _, m := range step.want {
			if l.rings[m] == 0 {
				t.Errorf("%s: member %d sleeps on", step.name, m)
			}
		}
	}
}

func TestBrokenProtocol(t *testing.T) {
	mark := func(card uint32) []byte {
		return appendMark([]byte{byte(kindMark)}, transport.Record{Card: card, Gen: 1, Last: 1})
	}
	request := func(members ...int) []byte {
		return appendRequest([]byte{byte(kindRequest)}, members, []byte("x"))
	}
	for name, test := range map[string]struct {
		to, from int
		frame    []byte
		want     string
	}{
		"empty":             {0, 1, nil, "wrong shape"},
		"unknown kind":      {0, 1, []byte{99}, "unknown (99)"},
		"short mark":        {0, 1, []byte{1, 0, 0}, "wrong shape"},
		"too many marks":    {0, 1, make([]byte, 1+5*markBytes), "wrong shape"},
		"card out of range": {0, 1, mark(4), "card 4 of 4"},
		"a mark for another host": {0, 1,
			appendMark([]byte{byte(kindMark)}, transport.Record{Card: 1, Gen: 1, Last: 4}), "member 4 is not below"},
		"a mark for nobody": {0, 1, appendMark([]byte{byte(kindMark)}, transport.Record{Card: 1, Gen: 1, Last: 999}),
			"member 999 is not below"},
		"a chain without an end": {0, 1, mark(together), "chained"},
		"a chain with one card twice": {0, 1,
			append(appendMark([]byte{byte(kindMark)}, transport.Record{Card: 1, Gen: 1, Last: 1, Chained: true}),
				mark(1)[1:]...), "twice"},
		"batch to the root":          {0, 1, []byte{4, 1, 0, 0, 0, 0}, "batch frame from below"},
		"batch from below":           {1, below1, []byte{4, 1, 0, 0, 0, 0}, "batch frame from below"},
		"credit not owed by a child": {0, 1, appendNumber(nil, kindCredit, 1), "credit for 1 bytes"},
		"credit not owed":            {1, 0, appendNumber(nil, kindCredit, 1), "credit for 1 bytes"},
		"stranger":                   {0, below1, mark(0), "leads no host below"},
		"neighbour":                  {0, 2, mark(0), "leads no host below"},
		"not a leader":               {3, 1, mark(0), "leads no host"},
		"mark from above":            {1, 0, mark(0), "mark frame from above"},
		"request of a stranger":      {0, 1, request(4), "member 4 is not below"},
		"request of two, unordered":  {0, 1, request(3, 1), "out of order"},
		"request of more than all":   {0, 1, []byte{2, 255, 255, 255, 255, 0, 0, 0, 0}, "wrong shape"},
		"request beyond the end":     {0, 1, []byte{2, 0, 0, 0, 0, 9, 0, 0, 0}, "wrong shape"},
		"close for a stranger":       {0, 1, appendNumber(nil, kindClose, 4), "close frame for member 4"},
		"empty batch":                {1, 0, []byte{4}, "wrong shape"},
		"record beyond the end":      {1, 0, []byte{4, 2, 200, 0, 0, 0, 1}, "wrong shape"},
		"record of a wrong card":     {1, 0, []byte{4, 1, 4, 0, 0, 0}, "card 4 of 4"},
		"record of a wrong kind":     {1, 0, []byte{4, 9, 0, 0, 0, 0}, "unknown kind 9"},
		"closed by nobody":           {1, 0, appendNumber(nil, kindClosed, 4+Arity), "closed by member"},
		"a call from another host":   {0, 1, []byte{byte(kindCall)}, "not on the host"},
		"a call from above":          {1, 0, []byte{byte(kindCall)}, "not on the host"},
	} {
		l := newLink(t, deep(), 4, nil)
		acquireGroup(t, l, 4)
		err := l.boards[test.to].Receive(test.from, test.frame)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if marked := l.boards[0].Coordination().Marked(0); len(marked) > 0 {
			t.Errorf("%s: card 0 is marked by %v", name, marked)
		}
	}
}

func TestMarkingTwiceIsAnError(t *testing.T) {
	l := newLink(t, alone(2), 4, nil)
	card, gen := acquire(t, l)
	frame := appendMark([]byte{byte(kindMark)}, transport.Record{Card: card, Gen: gen, Last: 1})
	if err := l.boards[0].Receive(1, frame); err != nil {
		t.Fatal(err)
	}
	if err := l.boards[0].Receive(1, frame); err == nil {
		t.Fatal("a second mark passes")
	}
}

// A child that sends beyond its window, or after the end, is detected.
func TestWindowsAreKept(t *testing.T) {
	l := newLink(t, alone(2), 4, nil)
	big := appendRequest([]byte{byte(kindRequest)}, nil, make([]byte, transport.MaxRecord))
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = l.boards[0].Receive(1, big)
	}
	if err == nil || (n-1)*len(big) > requestWindow {
		t.Errorf("%d frames of %d bytes: %v", n, len(big), err)
	}
	if err := l.boards[1].Receive(0, appendNumber(nil, kindClosed, 0)); err != nil {
		t.Fatal(err)
	}
	if err := l.boards[1].Receive(0, []byte{4, 1, 0, 0, 0, 0}); err == nil || !strings.Contains(err.Error(),
		"after the log was closed") {
		t.Errorf("a batch after the end: %v", err)
	}
}
