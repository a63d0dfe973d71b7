package treeboard

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
)

const (
	// slots is how many operands of a member may be under way. A program that waits for each operation needs one. One
	// that submits many tensors at once gains more from their fusion, so their bytes are bounded together, too.
	slots = 8
	// MostEarly bounds Config.Early.
	MostEarly = 64 << 10
	// fullHosts is the number of hosts up to which a member's operands may have Config.Early bytes. All operands of a
	// card arrive at the root, which sends the result to as many children. So on more hosts they have fewer bytes, of
	// all hosts together as many as on fullHosts. With Config.Early at 4 KiB these 16 KiB take 0.13 ms over a link of
	// 1 Gbit/s, which is about what the saved journey takes there.
	fullHosts = 4
)

// earlyBytes is the most bytes of a member's operands in a lane on that many hosts.
func earlyBytes(early, hosts int) int { return min(early, fullHosts*early/hosts) }

// slotBytes is the room for an operand on a host's board. It does not depend on the lane, because a segment is made
// before its lanes.
func slotBytes(early int) int { return (early + 63) &^ 63 }

// earlyRoom is the room for the results of one batch in a log: each member has at most so many operands under way.
func earlyRoom(early int) int {
	if early == 0 {
		return 0
	}
	return slots * (slotBytes(early) + 64)
}

// underway is an operand that a member has put on its host's board.
type underway struct {
	mark  transport.Mark
	bytes int
}

// combination says how operands are combined. It is the same for all operands of a card, since the card stands for one
// Response.
type combination struct {
	dtype  tensor.DType
	reduce tensor.ReduceOp
	bytes  int // of each operand
}

func (c combination) String() string {
	return fmt.Sprintf("%v of %d bytes of %v", c.reduce, c.bytes, c.dtype)
}

// arrived is what a child has sent with a mark: an operand for each host below, in the order of child.hosts.
type arrived struct {
	mark transport.Mark
	as   combination
	data []byte
}

// ahead holds what one child has sent with marks of cards that this leader has not passed on yet.
type ahead struct {
	list []arrived // the memory behind its end is reused
}

// keep copies what has come with a mark. It returns false if the child has sent more than its members may.
func (a *ahead) keep(mark transport.Mark, as combination, data []byte) bool {
	a.drop(mark.Card, mark.Gen)
	if len(a.list) == slots {
		return false
	}
	var memory []byte
	if n := len(a.list); n < cap(a.list) {
		memory = a.list[:n+1][n].data
	}
	a.list = append(a.list, arrived{mark, as, append(memory[:0], data...)})
	return true
}

func (a *ahead) find(mark transport.Mark) *arrived {
	for i := range a.list {
		if a.list[i].mark == mark {
			return &a.list[i]
		}
	}
	return nil
}

// drop forgets what has come for a card at generation gen or an older one.
func (a *ahead) drop(card, gen uint32) {
	for i := range a.list {
		if m := a.list[i].mark; m.Card == card && int32(m.Gen-gen) <= 0 {
			last := len(a.list) - 1
			a.list[i], a.list[last] = a.list[last], a.list[i] // so that both keep their memory
			a.list = a.list[:last]
			return
		}
	}
}

// dropAll is drop for any generation.
func (a *ahead) dropAll(card uint32) {
	for i := range a.list {
		if a.list[i].mark.Card == card {
			a.drop(card, a.list[i].mark.Gen)
			return
		}
	}
}

// early is a leader's part in operands that travel with marks. leader.work guards it.
type early struct {
	from     []ahead  // by child
	combined []byte   // this host's members' operands, combined
	operands [][]byte // of the card that is being combined
	frame    []byte   // of kindOperands, while marks are sent
	results  []byte   // the root's, of the batch that it has cut
}

func newEarly(t *tree) early { return early{from: make([]ahead, len(t.children))} }

// forget drops all operands of a card from below, at generation gen or an older one.
func (e *early) forget(card, gen uint32) {
	for c := range e.from {
		e.from[c].drop(card, gen)
	}
}

// sentAhead reports whether an operand of this leader is under way. If not, no card that completes has operands of all
// members of its host.
func (l *leader) sentAhead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.put) > 0
}

// operand combines the operands of this host's members for a card that all of them have marked. ok is false if one has
// sent none. The result is valid until the next call, and until the mark is answered.
func (l *leader) operand(mark transport.Mark) (o transport.Operand, ok bool, err error) {
	if l.limit == 0 {
		return o, false, nil
	}
	l.early.operands = l.early.operands[:0]
	for i := range l.locals {
		one, ok, err := l.Up.Operand(i, mark)
		if err != nil || !ok {
			return o, false, err
		}
		if i == 0 {
			o = one
		} else if want, got := combinationOf(&o), combinationOf(&one); got != want {
			return o, false, fmt.Errorf("card %d: operand of member %d is %v, that of member %d %v", mark.Card,
				l.locals[i], got, l.locals[0], want)
		}
		l.early.operands = append(l.early.operands, one.Data)
	}
	if len(l.locals) > 1 {
		l.early.combined = grown(l.early.combined, len(o.Data))
		reduce.Reduce(o.DType, o.Reduce, l.early.combined, l.early.operands, 1)
		o.Data = l.early.combined
	}
	return o, true, nil
}

func combinationOf(o *transport.Operand) combination {
	return combination{o.DType, o.Reduce, len(o.Data)}
}

// fromBelow returns what each child has sent for a card, or false if one has sent nothing. f is called for each child,
// in their order, if none lacks.
func (l *leader) fromBelow(mark transport.Mark, as combination, f func(c int, data []byte)) (ok bool, err error) {
	for c := range l.early.from {
		a := l.early.from[c].find(mark)
		switch {
		case a == nil:
			return false, nil
		case a.as != as:
			return false, fmt.Errorf("card %d: operands from below member %d are %v, here they are %v", mark.Card,
				l.children[c].leader, a.as, as)
		}
	}
	for c := range l.early.from {
		f(c, l.early.from[c].find(mark).data)
	}
	return true, nil
}

// appendOperands encodes a completed card with the operands of this host and of all hosts below. It returns false if
// one of them lacks, and forgets the others.
func (l *leader) appendOperands(r transport.Record) (ok bool, err error) {
	mark := transport.Mark{Card: r.Card, Gen: r.Gen}
	defer l.early.forget(mark.Card, mark.Gen)
	o, ok, err := l.operand(mark)
	if err != nil || !ok {
		return false, err
	}
	p := appendMark(l.early.frame, r)
	p = append(p, byte(o.DType), byte(o.Reduce))
	p = append(put(p, uint32(len(o.Data))), o.Data...)
	ok, err = l.fromBelow(mark, combinationOf(&o), func(_ int, data []byte) { p = append(p, data...) })
	if err != nil || !ok {
		return false, err
	}
	l.connections.Add(uint64(len(p) - len(l.early.frame) - operandsHead))
	l.early.frame = p
	return true, nil
}

// countResults notes that the results of a batch go to the children.
func (l *leader) countResults(records []transport.Record) {
	for i := range records {
		if r := &records[i]; r.Kind == transport.RecordResult {
			l.connections.Add(uint64(len(r.Payload) * len(l.children)))
		}
	}
}

// operandsHead is the size of what precedes the operands of a card in a frame: the mark, type, operation and length.
const operandsHead = markBytes + 2 + 4

// cutOperands decodes the first card of body, which must not be empty, with its operands from that many hosts.
func cutOperands(body []byte, cards, hosts, limit int) (mark transport.Mark, last uint16, as combination, data,
	rest []byte, err error) {
	if len(body) < operandsHead {
		return mark, 0, as, nil, nil, errShape
	}
	mark = transport.Mark{Card: number(body), Gen: number(body[4:])}
	last = binary.LittleEndian.Uint16(body[8:])
	as = combination{tensor.DType(body[10]), tensor.ReduceOp(body[11]), int(number(body[12:]))}
	rest = body[operandsHead:]
	switch {
	case int64(mark.Card) >= int64(cards):
		err = fmt.Errorf("mark of card %d of %d", mark.Card, cards)
	case as.bytes <= 0 || as.bytes > limit || len(rest) < as.bytes*hosts:
		err = fmt.Errorf("operands of %d bytes of %d hosts, at most %d each, in %d bytes: %w", as.bytes, hosts, limit,
			len(rest), errShape)
	default:
		if err = reduce.Check(as.dtype, as.reduce); err == nil && as.bytes%as.dtype.Size() != 0 {
			err = fmt.Errorf("operands of %d bytes of %v: %w", as.bytes, as.dtype, errShape)
		}
	}
	if err != nil {
		return mark, 0, as, nil, nil, err
	}
	return mark, last, as, rest[:as.bytes*hosts], rest[as.bytes*hosts:], nil
}

// receiveOperands is receiveMarks for marks that operands have come with.
func (l *leader) receiveOperands(c int, body []byte) (completed bool, err error) {
	child := &l.children[c]
	for len(body) > 0 {
		mark, last, as, data, rest, err := cutOperands(body, l.Cards, len(child.hosts), l.limit)
		if err != nil {
			return false, fmt.Errorf("operands frame: %w", err)
		}
		body = rest
		l.marks = append(l.marks[:0], mark)
		done, late, err := l.markBelow(c, last)
		if err != nil {
			return false, err
		}
		if !late && !l.early.from[c].keep(mark, as, data) {
			return false, fmt.Errorf("operands frame: more than %d cards with operands are under way below member %d",
				slots, child.leader)
		}
		completed = completed || done
	}
	return completed, nil
}

// fold makes a card's record carry the result, if the operands of all hosts have come. Otherwise it forgets those that
// have.
func (r *root) fold(rec *transport.Record) error {
	if r.limit == 0 {
		return nil
	}
	mark := transport.Mark{Card: rec.Card, Gen: rec.Gen}
	defer r.early.forget(mark.Card, mark.Gen)
	own, ok, err := r.operand(mark)
	if err != nil || !ok {
		return err
	}
	all := slices.Grow(r.early.operands[:0], r.hosts)[:r.hosts]
	all[0] = own.Data
	n := len(own.Data)
	ok, err = r.fromBelow(mark, combinationOf(&own), func(c int, data []byte) {
		for i, h := range r.children[c].hosts {
			all[h] = data[i*n : (i+1)*n]
		}
	})
	r.early.operands = all
	if err != nil || !ok {
		return err
	}
	// Growing leaves the results before where they are.
	at := len(r.early.results)
	r.early.results = slices.Grow(r.early.results, n)[:at+n]
	out := r.early.results[at : at+n : at+n]
	reduce.Reduce(own.DType, own.Reduce, out, all, own.Scale)
	rec.Kind, rec.Payload = transport.RecordResult, out
	return nil
}

func grown(p []byte, n int) []byte { return slices.Grow(p[:0], n)[:n] }
