package collective

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// hierarchy gives a lane over several hosts two lanes besides its Comm: one inside its host, one between the hosts. The
// algorithms run on these as on any other lane. Hierarchical operations consist of operations on both, which overlap.
//
// Data that crosses between the hosts is cut into shards, one for each member of the smallest host. Each member carries
// its shard to the other hosts. On a larger host the further members have no shard.
type hierarchy struct {
	hosts      [][]int // members by host, as in transport.Lane
	host       int     // this member's
	index      int     // this member's index on its host
	shards     int     // members of the smallest host
	most       int     // members of the largest
	leaving    int     // the most members of one host whose successor is on another host
	contiguous bool    // the members of each host have consecutive numbers
	local      *Lane   // the members of this host
	cross      *Lane   // the members with this index on each host, by host; nil without a shard

	block  int     // the most of a block that a shard holds, in bytes
	least  int     // leastShard, unless tests change it
	little int     // the most that the first members of the hosts gather for all
	counts []int64 // an entry for each member of this host, for an operation on local
	blocks []int   // hosts+1 entries: where each host's part of an output starts, and the end
	parts  []int64 // an entry for each host, for an operation on cross
}

// newHierarchy returns nil if every member is a host of its own, or if all are on one host.
func newHierarchy(t *transport.Lane, o Options) *hierarchy {
	if t.Comm == nil || len(t.Hosts) < 2 || len(t.Hosts) == t.Comm.Size() {
		return nil
	}
	rank := t.Comm.Rank()
	h := &hierarchy{hosts: t.Hosts, shards: t.Comm.Size(), contiguous: true, least: leastShard}
	next := 0
	for i, members := range t.Hosts {
		leaving := 0
		for at, m := range members {
			if m == rank {
				h.host, h.index = i, at
			}
			if !slices.Contains(members, (m+1)%t.Comm.Size()) {
				leaving++
			}
			h.contiguous = h.contiguous && m == next
			next++
		}
		h.shards = min(h.shards, len(members))
		h.most = max(h.most, len(members))
		h.leaving = max(h.leaving, leaving)
	}
	own := t.Hosts[h.host]
	if len(own) > 1 && (t.Shared == nil || t.Shared.Size() != len(own) || t.Shared.Rank() != h.index) {
		panic(fmt.Sprintf("collective: members %v are said to share memory, and do not", own))
	}
	if len(own) > 1 {
		h.local = newLane(h.index, len(own), t.Shared, nil, o)
	} else {
		h.local = newLane(0, 1, nil, nil, o)
	}
	if h.index < h.shards {
		peers := make([]int, len(t.Hosts))
		for i, members := range t.Hosts {
			peers[i] = members[h.index]
		}
		h.cross = newLane(h.host, len(peers), nil, &crossComm{t.Comm, h.host, peers}, o)
	}
	h.block = max(leastOfBlock, min(mostOfBlock, stepBytes*len(h.hosts)))
	h.little = gatherBytes * (len(h.hosts) - 1)
	h.counts = make([]int64, len(own))
	h.blocks = make([]int, len(t.Hosts)+1)
	h.parts = make([]int64, len(t.Hosts))
	return h
}

// equal reports that all hosts have as many members.
func (h *hierarchy) equal() bool { return h.shards == h.most }

// moved is the two lanes' part of Lane.Moved.
func (h *hierarchy) moved() uint64 {
	moved := h.local.moved
	if h.cross != nil {
		moved += h.cross.moved
	}
	return moved
}

// reduceAcross starts the allreduce between the hosts, of the sums that each host has made. Every allreduce between
// hosts starts here, so this is the place that gives the data another form on the wire.
func (h *hierarchy) reduceAcross(r reduction) Op {
	return h.cross.AllreduceAs(r.wire, r.dt, r.op, r.in, r.out, r.scale, r.kept)
}

// reduceShards is Reducescatter for a lane inside a host. Unlike in Reducescatter, out may be this member's part of in.
func (l *Lane) reduceShards(r reduction, counts []int64) Op {
	l.begin()
	l.one[0] = Part{In: r.in, Out: r.out, Bytes: len(r.in)}
	s, err := l.dealOut(dealt{parts: l.one[:], counts: counts, scatters: true}, layout{dt: r.dt, op: r.op, prescale: 1,
		postscale: r.scale})
	if err != nil {
		panic(err)
	}
	if l.size == 1 {
		return l.allreduceLocal.start(l, s)
	}
	return l.reducescatterShared.start(l, s)
}

// hostOf is the host of a lane member.
func (h *hierarchy) hostOf(member int) int {
	return slices.IndexFunc(h.hosts, func(members []int) bool { return slices.Contains(members, member) })
}

// deal deals length bytes out to the first `shards` members of this host. It sets counts to the lengths of the shards,
// and returns this member's.
func (h *hierarchy) deal(length, shards int) (lo, hi int) {
	for i := range h.counts {
		from, to := h.shard(length, shards, i)
		h.counts[i] = int64(to - from)
	}
	return h.shard(length, shards, h.index)
}

// shard is the range of length bytes that the members with index i carry.
func (h *hierarchy) shard(length, shards, i int) (lo, hi int) {
	if i >= shards {
		return length, length
	}
	return share(length, shards, i)
}

// crossComm is a Comm among some members of another one, who have numbers of their own in it.
type crossComm struct {
	transport.Comm
	rank    int
	members []int
}

func (c *crossComm) Rank() int               { return c.rank }
func (c *crossComm) Size() int               { return len(c.members) }
func (c *crossComm) Send(to int, p []byte)   { c.Comm.Send(c.members[to], p) }
func (c *crossComm) Sent(to int) bool        { return c.Comm.Sent(c.members[to]) }
func (c *crossComm) Recv(from int, p []byte) { c.Comm.Recv(c.members[from], p) }
func (c *crossComm) Received(from int) bool  { return c.Comm.Received(c.members[from]) }

// pass runs operations on one of a hierarchy's lanes, one after the other.
type pass struct {
	op   Op  // nil: none runs
	done int // the number of operations that have ended
}

// advance drives the operation that runs, if one does. ended reports that it has just ended.
func (p *pass) advance() (ended bool, err error) {
	if p.op == nil {
		return false, nil
	}
	done, err := p.op.Advance()
	if err != nil {
		return false, err
	}
	if done {
		p.op = nil
		p.done++
	}
	return done, nil
}

// stepper is an operation on both lanes of a hierarchy. step drives the operations inside and across, and starts
// further ones. An error ends it, too.
type stepper interface {
	step() (done bool, err error)
}

// drive is Advance of a stepper: it steps until the end, or until nothing moves.
func (l *Lane) drive(s stepper) (bool, error) {
	for {
		before := l.Moved()
		done, err := s.step()
		switch {
		case done || err != nil:
			l.end()
			return true, err
		case l.Moved() == before:
			return false, nil
		}
	}
}

// idle reports that the next operation can be started.
func (p *pass) idle() bool { return p.op == nil }
