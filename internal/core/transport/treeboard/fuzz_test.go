package treeboard

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// FuzzReceive: Receive takes a frame whole or refuses it, and no frame breaks the receiver, whether that is the root, a
// leader in the middle or a leader at the end of the tree.
func FuzzReceive(f *testing.F) {
	f.Add(byte(0), true, appendMark(appendMark([]byte{byte(kindMark)}, transport.Record{Card: 1, Gen: 1,
		Last: 1, Chained: true}), transport.Record{Card: 2, Gen: 1, Last: 1}))
	f.Add(byte(0), true, appendRequest([]byte{byte(kindRequest)}, []int{1}, []byte("request")))
	f.Add(byte(1), true, appendRequest([]byte{byte(kindRequest)}, nil, []byte("request")))
	f.Add(byte(1), true, appendNumber(nil, kindClose, 10))
	f.Add(byte(2), true, operandsFrame(transport.Mark{Card: 1, Gen: 1}, 2*Arity+1, tensor.Float32, make([]byte, 8), 1))
	f.Add(byte(0), true, operandsFrame(transport.Mark{Card: 1, Gen: 1}, 1, tensor.BFloat16, make([]byte, 2), 1+Arity))
	f.Add(byte(1), false,
		appendRecord(appendRecord(appendRecord([]byte{byte(kindBatch)}, transport.Record{Kind: transport.RecordCard,
			Card: 1}), transport.Record{Kind: transport.RecordRetired, Card: 1, Gen: 3}),
			transport.Record{Kind: transport.RecordResponse, Payload: []byte("response")}))
	f.Add(byte(2), false, appendRecord([]byte{byte(kindBatch)}, transport.Record{Kind: transport.RecordResult, Card: 1,
		Payload: []byte("result")}))
	f.Add(byte(2), false, appendNumber(nil, kindClosed, 1))
	f.Add(byte(2), false, appendNumber(nil, kindCredit, 1))
	f.Fuzz(func(t *testing.T, at byte, fromBelow bool, frame []byte) {
		to, from := int(at)%3, 0
		if fromBelow {
			from = []int{1, Arity + 1, 2*Arity + 1}[to]
		}
		l := newLink(t, alone(2*Arity+2), 4, nil)
		if l.boards[to].Receive(from, frame) != nil {
			return
		}
		b := l.boards[to]
		for nextBatch(b) != nil {
		}
		turn(b)
		b.TakeStale(func(uint32, uint32) {})
		b.Closed()
		if to == 0 {
			b.Coordination().TakeRequests(func(members []int, p []byte) {
				if len(members) == 0 || len(p) > transport.MaxRecord {
					t.Errorf("request of members %v, %d bytes", members, len(p))
				}
			})
		}
	})
}

// directPipe delivers at once. That suffices if no answer comes.
type directPipe struct {
	boards []Board
	from   int
}

func (p directPipe) Send(to int, frame []byte) {
	if err := p.boards[to].Receive(p.from, frame); err != nil {
		panic(err)
	}
}

func (directPipe) Flush() {}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	boards := make([]Board, 3)
	for m := range boards {
		boards[m], _ = New(Config{Member: m, Hosts: alone(3), Cards: 4, Early: earlyInTests,
			Pipe: directPipe{boards, m}, Ring: func() {}, Abort: func(err error) { t.Fatal(err) }})
	}
	card, gen, _ := boards[0].Coordination().Acquire()
	ahead, _, _ := boards[0].Coordination().Acquire()
	operand := transport.Operand{DType: tensor.Float32, Reduce: tensor.Sum, Scale: 1, Data: make([]byte, 64)}
	requests, none := func([]int, []byte) {}, func(uint32, uint32) {}
	if n := testing.AllocsPerRun(1000, func() {
		for _, b := range boards {
			b.Mark(card, gen)
			b.MarkWith(ahead, gen, &operand)
			turn(b)
			b.TakeStale(none)
		}
		boards[0].Coordination().TakeRequests(requests)
		for _, b := range boards {
			if r := nextBatch(b); len(r) != 2 || r[0].Card+r[1].Card != card+ahead {
				t.Fatalf("records %v", r)
			}
			turn(b)
			b.TakeStale(none)
		}
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
