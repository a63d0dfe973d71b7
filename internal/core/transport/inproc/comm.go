package inproc

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// exchange hands messages from member to member of one lane.
type exchange struct {
	world   *world
	members []int                  // world ranks
	pairs   []atomic.Pointer[pair] // [from*size+to]; nil until one of the two posts
}

// pair is the path from one member to another. A posted send meets a posted receive under mu, and the later of the two
// copies.
type pair struct {
	mu        sync.Mutex
	sending   atomic.Bool // src is posted; written under mu
	receiving atomic.Bool // dst is posted; written under mu
	src, dst  []byte
}

func newExchange(w *world, members []int) *exchange {
	return &exchange{
		world:   w,
		members: members,
		pairs:   make([]atomic.Pointer[pair], len(members)*len(members)),
	}
}

func (x *exchange) pair(from, to int) *pair {
	at := &x.pairs[from*len(x.members)+to]
	if p := at.Load(); p != nil {
		return p
	}
	at.CompareAndSwap(nil, new(pair))
	return at.Load()
}

// meet copies if both sides have posted, and reports whether it did. Different lengths are an error, and both posts
// stay.
func (p *pair) meet() (bool, error) {
	if !p.sending.Load() || !p.receiving.Load() {
		return false, nil
	}
	if len(p.src) != len(p.dst) {
		return false, fmt.Errorf("a message of %d bytes met a receive of %d", len(p.src), len(p.dst))
	}
	copy(p.dst, p.src)
	p.src, p.dst = nil, nil
	p.sending.Store(false)
	p.receiving.Store(false)
	return true, nil
}

// withdraw takes back all posts of a member, and reports for each peer whether that peer waits for the member.
func (x *exchange) withdraw(member int, peers func(waits bool, peer, member int)) {
	for peer := range x.members {
		if p := x.pairs[member*len(x.members)+peer].Load(); p != nil {
			p.mu.Lock()
			p.src = nil
			p.sending.Store(false)
			waits := p.receiving.Load()
			p.mu.Unlock()
			peers(waits, peer, member)
		}
		if p := x.pairs[peer*len(x.members)+member].Load(); p != nil {
			p.mu.Lock()
			p.dst = nil
			p.receiving.Store(false)
			waits := p.sending.Load()
			p.mu.Unlock()
			peers(waits, peer, member)
		}
	}
}

func (x *exchange) abortIf(waits bool, peer, closed int) {
	if waits {
		x.world.abort(fmt.Errorf("rank %d waits for rank %d, which has closed its network", x.members[peer],
			x.members[closed]))
	}
}

// commMember is one member's transport.Comm.
type commMember struct {
	*exchange
	network *network
	rank    int
}

var _ transport.Comm = (*commMember)(nil)

func (c *commMember) Rank() int { return c.rank }
func (c *commMember) Size() int { return len(c.members) }

func (c *commMember) Sent(to int) bool {
	p := c.pairs[c.rank*len(c.members)+to].Load()
	return p == nil || !p.sending.Load()
}

func (c *commMember) Received(from int) bool {
	p := c.pairs[from*len(c.members)+c.rank].Load()
	return p == nil || !p.receiving.Load()
}

// Send panics if the previous send is outstanding.
func (c *commMember) Send(to int, b []byte) {
	p := c.pair(c.rank, to)
	p.mu.Lock()
	if p.sending.Load() {
		p.mu.Unlock()
		panic(fmt.Sprintf("inproc: member %d posts a second send to member %d", c.rank, to))
	}
	p.src = b
	p.sending.Store(true)
	met, err := p.meet()
	p.mu.Unlock()
	c.posted(to, met, err)
}

// Recv panics if the previous receive is outstanding.
func (c *commMember) Recv(from int, b []byte) {
	p := c.pair(from, c.rank)
	p.mu.Lock()
	if p.receiving.Load() {
		p.mu.Unlock()
		panic(fmt.Sprintf("inproc: member %d posts a second receive from member %d", c.rank, from))
	}
	p.dst = b
	p.receiving.Store(true)
	met, err := p.meet()
	p.mu.Unlock()
	c.posted(from, met, err)
}

// posted wakes the peer. If the peer left before the post, withdraw did not see that this member waits, so posted
// checks for that.
func (c *commMember) posted(peer int, met bool, err error) {
	switch {
	case err != nil:
		c.world.abort(fmt.Errorf("ranks %d and %d: %w", c.members[c.rank], c.members[peer], err))
	case met:
		c.world.bells[c.members[peer]].Ring()
	default:
		c.abortIf(c.world.closed[c.members[peer]].Load(), c.rank, peer)
	}
}
