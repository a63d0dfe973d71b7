package treeboard

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// operandsFrame is a frame of one card, with equal operands of that many hosts.
func operandsFrame(mark transport.Mark, last int, dt tensor.DType, data []byte, hosts int) []byte {
	p := appendMark([]byte{byte(kindOperands)}, transport.Record{Card: mark.Card, Gen: mark.Gen, Last: uint16(last)})
	p = put(append(p, byte(dt), byte(tensor.Sum)), uint32(len(data)))
	for range hosts {
		p = append(p, data...)
	}
	return p
}

// bytesOf are some float32.
func bytesOf(numbers ...float32) (p []byte) {
	for _, x := range numbers {
		p = binary.NativeEndian.AppendUint32(p, math.Float32bits(x))
	}
	return p
}

func sumOf(numbers ...float32) *transport.Operand {
	return &transport.Operand{DType: tensor.Float32, Reduce: tensor.Sum, Scale: 1, Data: bytesOf(numbers...)}
}

// only returns the one record of the batch that every member reads.
func (l *link) only(t *testing.T) (r transport.Record) {
	t.Helper()
	all := l.read()
	for m := range l.boards {
		if len(all[m]) != 1 {
			t.Fatalf("member %d reads %v", m, all[m])
		}
		if r = all[m][0]; r.Kind != all[0][0].Kind || !bytes.Equal(r.Payload, all[0][0].Payload) {
			t.Fatalf("member %d reads %v, member 0 %v", m, r, all[0][0])
		}
	}
	return r
}

// If all members send their data with their marks, one frame goes up each link and one down, and the log has the
// result. If one leaves its data behind, the log has the card alone. Neither uses up the room for data.
func TestDataTravelsWithTheMark(t *testing.T) {
	for name, hosts := range map[string][][]int{"alone": alone(4), "deep": deep(), "wide": hostsOf(12, 3),
		"mixed order": {{0, 3}, {1, 2}}} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, hosts, 4, nil)
			card, gen := acquire(t, l)
			n := len(l.boards)
			for round := range 4 * slots {
				frames := map[kind]int{}
				l.sends = func(_ int, frame []byte) { frames[kind(frame[0])]++ }
				behind := -1
				if round%2 == 1 {
					behind = round % n
				}
				for m := n - 1; m >= 0; m-- {
					o := sumOf(float32(m+1), float32(round))
					if m == behind {
						o.Data = make([]byte, 1<<20)
					}
					if !l.boards[m].MarkWith(card, gen, o) {
						t.Fatalf("member %d is refused", m)
					}
				}
				r := l.only(t)
				links := len(hosts) - 1
				if behind >= 0 {
					if r.Kind != transport.RecordCard || frames[kindBatch] != links {
						t.Fatalf("round %d: record %v, frames %v", round, r, frames)
					}
					continue
				}
				want := bytesOf(float32(n*(n+1)/2), float32(n*round))
				if r.Kind != transport.RecordResult || r.Card != card || !bytes.Equal(r.Payload, want) {
					t.Fatalf("round %d: record %v, want %x", round, r, want)
				}
				if frames[kindOperands] != links || frames[kindBatch] != links || frames[kindMark] != 0 {
					t.Fatalf("round %d: frames %v over %d links", round, frames, links)
				}
			}
		})
	}
}

// Operands whose card is retired while they are on their way count for no later generation, and their room is free.
func TestDataOfARetiredCardIsForgotten(t *testing.T) {
	l := newLink(t, deep(), 1, nil)
	for round := range 3 * slots {
		card, gen := acquire(t, l)
		for _, m := range []int{0, 2, 1, 3, below1, 4} {
			if !l.boards[m].MarkWith(card, gen, sumOf(1000)) {
				t.Fatalf("member %d is refused", m)
			}
			if m == 3 && round%2 == 0 {
				l.poll()
			}
		}
		if round%3 > 0 {
			l.poll()
		}
		if _, ok := l.boards[0].Coordination().Retire(card); !ok {
			t.Fatal("not retired")
		}
		l.read()
		for _, b := range l.boards {
			stale(b)
		}
		card, gen = acquire(t, l)
		for _, b := range l.boards {
			b.MarkWith(card, gen, sumOf(1))
		}
		want := bytesOf(float32(len(l.boards)))
		if r := l.only(t); r.Kind != transport.RecordResult || !bytes.Equal(r.Payload, want) {
			t.Fatalf("round %d: record %v", round, r)
		}
		l.boards[0].Coordination().Retire(card)
		l.read()
	}
}

// Operands of generations that have ended leave their room at every leader on their way, whatever cards come next.
func TestRetiredCardsLeaveRoomAtEveryLeader(t *testing.T) {
	l := newLink(t, deep(), 2*slots, nil)
	for round := range 4 {
		marks := acquireGroup(t, l, 2*slots)
		for _, k := range marks {
			if int(k.Card)/slots == round%2 { // other cards each time
				l.boards[below1].MarkWith(k.Card, k.Gen, sumOf(1)) // with host 1, which waits for its own members
				l.boards[4].MarkWith(k.Card, k.Gen, sumOf(1))      // with the root
			}
		}
		l.poll()
		for _, k := range marks {
			l.boards[0].Coordination().Retire(k.Card)
		}
		l.read()
	}
}

// A member has room for some operands at a time. Marks beyond it carry none.
func TestRoomForOperandsIsBounded(t *testing.T) {
	l := newLink(t, hostsOf(6, 2), 2*slots, nil)
	marks := acquireGroup(t, l, 2*slots)
	for _, b := range l.boards {
		for _, k := range marks {
			b.MarkWith(k.Card, k.Gen, sumOf(1, 2, 3))
		}
	}
	var kinds [256]int
	for _, r := range l.read()[5] {
		kinds[r.Kind]++
	}
	if kinds[transport.RecordResult] != slots || kinds[transport.RecordCard] != slots {
		t.Errorf("%d results and %d cards, with room for %d operands", kinds[transport.RecordResult],
			kinds[transport.RecordCard], slots)
	}
}

// The bytes of a member's operands are bounded together. What has been answered makes room for the next one.
func TestBoundOfOperands(t *testing.T) {
	for bound, want := range map[int]int{-1: 0, 0: 0, 4: 0, 8: 1, 20: 2, 1 << 30: 4} {
		l := newLink(t, hostsOf(4, 2), 4, nil)
		for _, b := range l.boards {
			b.BoundEarly(bound)
		}
		for range 3 {
			results := 0
			marks := acquireGroup(t, l, 4)
			for _, b := range l.boards {
				for _, k := range marks {
					b.MarkWith(k.Card, k.Gen, sumOf(1, 2))
				}
			}
			for _, r := range l.read()[3] {
				if r.Kind == transport.RecordResult {
					results++
				}
			}
			if results != want {
				t.Errorf("bound %d: %d results of 8 bytes, want %d", bound, results, want)
			}
			for _, k := range marks {
				l.boards[0].Coordination().Retire(k.Card)
			}
			l.read()
		}
	}
}

// A bound that a member has set lets no other member's operand break the protocol.
func TestMembersMayHaveOtherBounds(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	l.boards[2].BoundEarly(4)
	card, gen := acquire(t, l)
	for _, k := range []struct {
		data *transport.Operand
		kind byte
	}{{sumOf(1), transport.RecordResult}, {sumOf(1, 2), transport.RecordCard}, {sumOf(1), transport.RecordResult}} {
		for _, b := range l.boards {
			b.MarkWith(card, gen, k.data)
		}
		if r := l.only(t); r.Kind != k.kind {
			t.Errorf("%d bytes: record %v", len(k.data.Data), r)
		}
	}
}

// Only a driver combines operands. Whoever else receives the last one of a host's card stores it, and wakes the driver;
// if a Request follows, which may not overtake the mark, the mark goes on without data. On a host of one rank nothing
// is to be combined, so the receiver sends all on.
func TestOnlyDriversCombine(t *testing.T) {
	for _, c := range []struct {
		name    string
		hosts   func() [][]int
		mark    []int // in this order
		last    int   // leads a host below host 1, and marks last
		request bool  // follows the last mark
		sent    kind  // without the driver of host 1
		then    kind  // by its Poll
		want    byte
	}{
		{"several ranks", deep, []int{0, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10}, below1, false, 0, kindOperands,
			transport.RecordResult},
		{"a request follows", deep, []int{0, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10}, below1, true, kindMark, 0,
			transport.RecordCard},
		{"one rank", func() [][]int { return alone(Arity + 2) }, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, Arity + 1, false,
			kindOperands, 0, transport.RecordResult},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, c.hosts(), 4, nil)
			card, gen := acquire(t, l)
			for _, m := range c.mark {
				l.boards[m].MarkWith(card, gen, sumOf(1))
			}
			l.poll()
			l.boards[c.last].MarkWith(card, gen, sumOf(1))
			if c.request {
				l.boards[c.last].Post([]byte("request"))
			}
			turn(l.boards[c.last])
			var sent []kind
			l.sends = func(from int, frame []byte) {
				if from == 1 && kind(frame[0]) != kindRequest {
					sent = append(sent, kind(frame[0]))
				}
			}
			rings := l.rings[1]
			l.deliver(c.last, 1, 1<<30)
			only := func(what string, k kind) {
				if (k == 0) != (len(sent) == 0) || k != 0 && (len(sent) != 1 || sent[0] != k) {
					t.Errorf("%s: host 1 has sent %v, want %v", what, sent, k)
				}
				sent = nil
			}
			only("frames have come", c.sent)
			if c.sent == 0 && l.rings[1] == rings {
				t.Error("nobody wakes the driver")
			}
			for range 3 {
				rings = l.rings[1]
				turn(l.boards[1])
				if l.rings[1] != rings {
					t.Error("the driver wakes itself")
				}
			}
			only("the driver has had its turn", c.then)
			l.sends = nil
			if r := l.only(t); r.Kind != c.want {
				t.Errorf("record %v", r)
			}
		})
	}
}

// A lane on many hosts sends shorter operands ahead, since all of them come together at the root.
func TestLaneOnManyHostsSendsLessAhead(t *testing.T) {
	for hosts, want := range map[int]int{1: 4096, 4: 4096, 8: 2048, 64: 256, 1024: 16} {
		if got := earlyBytes(4096, hosts); got != want {
			t.Errorf("%d bytes on %d hosts, want %d", got, hosts, want)
		}
	}
}

// Members that contribute differently to one card break the protocol: on one host, or on several.
func TestOperandsMustAgree(t *testing.T) {
	for name, hosts := range map[string][][]int{"one host": {{0, 1}, {2}}, "two hosts": {{0}, {1, 2}}} {
		for what, other := range map[string]*transport.Operand{
			"length": sumOf(1, 2),
			"type":   {DType: tensor.Int32, Reduce: tensor.Sum, Scale: 1, Data: make([]byte, 4)},
			"op":     {DType: tensor.Float32, Reduce: tensor.Max, Scale: 1, Data: make([]byte, 4)},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				l := newLink(t, hosts, 4, nil)
				var aborted error
				l.abort = func(_ int, err error) { aborted = err }
				card, gen := acquire(t, l)
				l.boards[0].MarkWith(card, gen, sumOf(1))
				l.boards[1].MarkWith(card, gen, other)
				last := sumOf(1)
				if name == "two hosts" {
					last = other
				}
				l.boards[2].MarkWith(card, gen, last)
				l.read()
				if aborted == nil || !strings.Contains(aborted.Error(), "card 0") {
					t.Errorf("aborted with %v", aborted)
				}
			})
		}
	}
}

// A frame of operands that is damaged, or that no member following the protocol sends, is refused.
func TestOperandsFramesAreChecked(t *testing.T) {
	mark := transport.Mark{Card: 1, Gen: 1}
	good := operandsFrame(mark, 1, tensor.Float32, make([]byte, 8), 1)
	at := func(i int, v byte) []byte {
		p := slices.Clone(good)
		p[i] = v
		return p
	}
	for what, frame := range map[string][]byte{
		"cut":           good[:len(good)-1],
		"no body":       good[:1],
		"too long":      operandsFrame(mark, 1, tensor.Float32, make([]byte, earlyInTests+4), 1),
		"no data":       operandsFrame(mark, 1, tensor.Float32, nil, 1),
		"half element":  operandsFrame(mark, 1, tensor.Float64, make([]byte, 12), 1),
		"a byte more":   append(slices.Clone(good), 0),
		"strange type":  at(11, 99),
		"strange op":    at(12, 99),
		"strange card":  at(1, 77),
		"strange last":  operandsFrame(mark, 2, tensor.Float32, make([]byte, 8), 1),
		"chained":       at(4, 0x80),
		"a float8 type": at(11, byte(tensor.Float8E4M3FN)),
	} {
		l := newLink(t, alone(3), 4, nil)
		if err := l.boards[0].Receive(1, frame); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	l := newLink(t, alone(3), 4*slots, nil)
	for i, k := range acquireGroup(t, l, slots+1) {
		err := l.boards[0].Receive(1, operandsFrame(k, 1, tensor.Float32, make([]byte, 8), 1))
		if (err != nil) != (i == slots) {
			t.Errorf("card %d with operands: %v", i, err)
		}
	}
}

// Marks and data that come before or after a close are dropped with the log.
func TestDataAfterTheEnd(t *testing.T) {
	l := newLink(t, deep(), 4, nil)
	card, gen := acquire(t, l)
	for _, m := range []int{0, 1, 3, below1} {
		l.boards[m].MarkWith(card, gen, sumOf(1))
	}
	l.boards[2].Close()
	l.read()
	for m, b := range l.boards {
		if !b.MarkWith(card, gen, sumOf(1)) || !b.Closed() {
			t.Errorf("member %d: the lane is open", m)
		}
	}
}
