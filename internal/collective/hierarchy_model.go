package collective

import "math/bits"

// The model of what an allreduce over several hosts costs. Its unit is a byte on
// a connection between two members, as in messageBytes. With P members on H
// hosts, at most L on one, S on the smallest, n bytes, m = messageBytes, and
// y = syncBytes:
//
//	across(s, n, k) = the cheaper of doubling, rounds(s)·(m + 1.5·k·n), and
//	                  ring, 2(s-1)·m + 2·k·n·(s-1)/s
//
// is an allreduce among s members where k members of a host use its link at the
// same time. In it 1.5 is as in doublingIsCheaper. Then
//
//	flat        the same with s = P, where k is L for doubling, and for the ring the
//	            number of members of a host whose successor is on another one
//	replicated  y + n/3 + across(H, n, S), for equal hosts only
//	sharded     2y + 2n/3b + the larger of 2n(b-1)/3b and across(H, n/S, S)
//
// since shared memory moves bytes about three times as fast as a connection, and
// of b blocks all but one pass through it while another is between the hosts.

// syncBytes is what a synchronisation of the members of a host costs: about 2 µs.
const syncBytes = 6 << 10

// form is a way to allreduce over several hosts.
type form int

const (
	flat form = iota
	replicated
	sharded
)

// allreduceForm chooses for n bytes, which are `sent` on the wire. A deterministic lane must not choose by
// length between flat and the others, whose order of combining differs.
func (l *Lane) allreduceForm(n, sent int) form {
	h := l.hier
	if h == nil || l.options.Allreduce == Flat {
		return flat
	}
	hosts, shards := len(h.hosts), h.shardsOf(n)
	blocks, _ := h.blocksOf(n, shards)
	inside := 2 * n / 3
	first := inside / blocks
	best, cost := sharded, 2*syncBytes+first+max(inside-first, acrossCost(hosts, ceilDiv(sent, shards), shards, shards))
	if c := syncBytes + n/3 + acrossCost(hosts, sent, h.shards, h.shards); h.equal() && c <= cost {
		best, cost = replicated, c
	}
	if l.options.Allreduce == ByModel && !l.options.Deterministic && acrossCost(l.size, sent, h.most, h.leaving) < cost {
		best = flat
	}
	return best
}

// acrossCost is across(size, n, k) with a k for doubling and one for the ring.
func acrossCost(size, n, doublingLinks, ringLinks int) int {
	rounds := bits.Len(uint(size)) - 1
	if size&(size-1) != 0 {
		rounds += 2
	}
	doubling := rounds * (messageBytes + doublingLinks*(n+n/2))
	ring := 2*(size-1)*messageBytes + 2*ringLinks*(n-n/size)
	return min(doubling, ring)
}

const (
	// leastShard is the least length for which a further member carries a shard:
	// a shorter message costs hardly less.
	leastShard = 4 << 10
	// Of a long tensor each shard is cut so that a block's part of it has
	// stepBytes for each host, within these limits: enough that a step between
	// hosts costs much more than its message, and little enough that the phases
	// inside the hosts are hidden behind those between them.
	stepBytes    = 512 << 10
	leastOfBlock = 1 << 20
	mostOfBlock  = 2 << 20
)

// shardsOf is how many members of each host carry n bytes between the hosts.
func (h *hierarchy) shardsOf(n int) int { return max(1, min(h.shards, n/h.least)) }

// blocksOf cuts n bytes, carried in shards, into blocks of equal length: how many,
// and the length of all but the last.
func (h *hierarchy) blocksOf(n, shards int) (blocks, length int) {
	length = alignUp(ceilDiv(n, ceilDiv(n, h.block*shards)), lineBytes*shards)
	return ceilDiv(n, length), length
}
