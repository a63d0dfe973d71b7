package collective

import (
	"math/bits"

	"github.com/gorovod/gorovod/internal/core/reduce"
)

// allreduceHalving is the allreduce of medium sizes: a reduce-scatter by recursive halving, then an allgather by
// recursive doubling, over one share for each member that takes part. Each round of halving splits the range that a
// member is responsible for: the member sends one half to the member on the other side, and combines the data that it
// receives with the other half. In the end each member owns one share. The rounds of doubling go back the same way. If
// the size is no power of two, the first 2×extra members form pairs, as in allreduceDoubling.
//
// Each element is combined by one member at a time, and its final form is passed on unchanged, so all members get the
// same bits. 16-bit floats are rounded after each round. The last round of halving applies the scale.
//
// With compression a member rounds the data that it sends. It rounds the final form once, before it passes it on: see
// wire.go.
//
// Steps: 2×log2(size), two more unless size is a power of two. Bytes: each member sends and receives 2n(p-1)/p, where p
// is the number of members that take part, and reduces n(p-1)/p. Members of pairs send, receive and reduce up to n
// more. Memory: n/2, or n if there are pairs. Chosen if doubling sends too many bytes and the ring too many messages,
// see model.go.
type allreduceHalving struct {
	lane   *Lane
	todo   reduction
	rounds int // of halving, and as many of doubling
	extra  int // how many members exceed a power of two
	number int // of this member, among those that take part

	// round 0 folds in. Then come the rounds of halving and of doubling. The last round folds out.
	round  int
	posted bool   // this round's messages are posted
	lo, hi int    // the range of shares that this member is responsible for, or has
	data   []byte // this member's data so far: in, then out
	temp   []byte // received data, to be combined or widened
	wire   []byte // compressed: the data to send

	exchange
}

// exchange describes one round of a member. Lengths of 0 are sent, too.
type exchange struct {
	peer         int
	sends, takes bool
	give, get    [2]int // ranges of bytes
	sum          bool   // the received data is to be combined
}

func (a *allreduceHalving) start(l *Lane, todo reduction) Op {
	rounds := bits.Len(uint(l.size)) - 1
	p := 1 << rounds
	*a = allreduceHalving{lane: l, todo: todo, rounds: rounds, extra: l.size - p, hi: p, data: todo.in}
	a.number = l.rank - a.extra
	if l.rank < 2*a.extra {
		a.number = l.rank / 2
	}
	n := len(todo.in)
	for i := range p {
		l.offsets[i], l.offsets[i+1] = share(n, p, i)
	}
	most := l.offsets[(p+1)/2] // the first half is the longest message
	if a.extra > 0 {
		most = n
	}
	most = todo.sent(most)
	if todo.compressed() {
		memory := l.temporary(2 * most)
		a.temp, a.wire = memory[:most], memory[most:]
	} else {
		a.temp = l.temporary(most)
	}
	return a
}

func (a *allreduceHalving) Advance() (bool, error) {
	comm := a.lane.comm
	for last := 2*a.rounds + 1; a.round <= last; a.round++ {
		if !a.posted {
			a.plan()
			if a.takes {
				a.lane.recv(a.peer, a.landing())
			}
			if a.sends {
				a.lane.send(a.peer, a.outgoing())
			}
			a.posted = true
		}
		if a.takes && !comm.Received(a.peer) || a.sends && !comm.Sent(a.peer) {
			return false, nil
		}
		if a.takes {
			a.deal()
		}
		if a.round == a.rounds {
			a.own()
		}
		a.posted = false
		a.lane.moved++
	}
	a.lane.end()
	return true, nil
}

// plan decides this member's part in the round.
func (a *allreduceHalving) plan() {
	rank := a.lane.rank
	paired := rank < 2*a.extra
	folded := paired && rank%2 == 0
	whole := [2]int{0, len(a.todo.in)}
	a.exchange = exchange{peer: rank ^ 1, give: whole, get: whole}
	switch {
	case a.round == 0:
		a.sends, a.takes, a.sum = folded, paired && !folded, true
	case a.round > 2*a.rounds:
		a.sends, a.takes = paired && !folded, folded
	case !folded:
		a.sends, a.takes = true, true
		a.split()
	}
}

// split plans a round of halving or doubling, and sets lo and hi to their values after it.
func (a *allreduceHalving) split() {
	offsets := a.lane.offsets
	bytes := func(lo, hi int) [2]int { return [2]int{offsets[lo], offsets[hi]} }
	if a.sum = a.round <= a.rounds; a.sum {
		half := (a.hi - a.lo) / 2
		mid := a.lo + half
		a.peer = a.member(a.number ^ half)
		if a.number&half == 0 {
			a.give, a.get = bytes(mid, a.hi), bytes(a.lo, mid)
			a.hi = mid
		} else {
			a.give, a.get = bytes(a.lo, mid), bytes(mid, a.hi)
			a.lo = mid
		}
		return
	}
	length := a.hi - a.lo
	a.peer = a.member(a.number ^ length)
	a.give = bytes(a.lo, a.hi)
	if a.number&length == 0 {
		a.get = bytes(a.hi, a.hi+length)
		a.hi += length
	} else {
		a.get = bytes(a.lo-length, a.lo)
		a.lo -= length
	}
}

// member is the inverse of number.
func (a *allreduceHalving) member(number int) int {
	if number < a.extra {
		return 2*number + 1
	}
	return number + a.extra
}

// landing is the memory into which this round's message is received.
func (a *allreduceHalving) landing() []byte {
	if a.sum || a.todo.compressed() {
		return a.temp[:a.todo.sent(a.get[1]-a.get[0])]
	}
	return a.todo.out[a.get[0]:a.get[1]]
}

// outgoing is this round's message.
func (a *allreduceHalving) outgoing() []byte {
	p := a.data[a.give[0]:a.give[1]]
	if !a.todo.compressed() {
		return p
	}
	w := a.wire[:a.todo.sent(len(p))]
	a.todo.narrow(w, p)
	return w
}

// deal combines or widens the data that has been received.
func (a *allreduceHalving) deal() {
	landed := a.landing()
	out, mine := a.todo.out[a.get[0]:a.get[1]], a.data[a.get[0]:a.get[1]]
	scale := 1.0
	if a.round == a.rounds {
		scale = a.todo.scale
	}
	switch {
	case len(out) == 0:
	case !a.sum && a.todo.compressed():
		a.todo.widen(out, landed)
	case !a.sum:
	case a.todo.compressed():
		a.todo.add(out, mine, landed, scale)
	default:
		srcs := a.lane.srcs[:2]
		srcs[0], srcs[1] = mine, landed
		if a.peer < a.lane.rank {
			srcs[0], srcs[1] = landed, mine
		}
		reduce.Reduce(a.todo.dt, a.todo.op, out, srcs, scale)
	}
	if a.sum {
		a.data = a.todo.out
	}
}

// own rounds the share that this member has made, so that this member has the same bits that it sends to the others.
func (a *allreduceHalving) own() {
	if own := a.todo.out[a.lane.offsets[a.lo]:a.lane.offsets[a.hi]]; a.takes && a.todo.compressed() && len(own) > 0 {
		a.todo.round(own, a.temp)
	}
}
