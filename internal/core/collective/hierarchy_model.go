package collective

import "time"

// A model of the cost of an allreduce over several hosts, in the unit of model.go. With P members on H hosts, at most L
// on one, S on the smallest, n bytes, y = syncBytes, and across as in model.go:
//
//	flat        across(P, n), with k = L members of a host that use its link at the same
//	            time for doubling and halving, and for the ring as many as have a
//	            successor on another host
//	replicated  y + n/8 + across(H, n) with k = S, for equal hosts only
//	sharded     2y + n/4b + the larger of n(b-1)/4b and across(H, n/S) with k = S
//
// because shared memory moves bytes at least eight times as fast as a wire of up to 10 Gbit/s between hosts, and
// because of b blocks all but one pass through shared memory while another is between the hosts. (Shared memory is
// three times as fast as the loopback interface, but if that connects the "hosts", the forms differ little.)
// BenchmarkForms in package world compares them over 1 Gbit/s. Where the wire has been measured (Tuning.Over), y and
// the ratio of the speeds follow from its rate.

// syncBytes is the cost of a synchronisation of the members of a host, about 2 µs, on a fast network.
const syncBytes = 6 << 10

// memoryRatio is the speed of shared memory divided by that of a wire, of 10 Gbit/s.
const memoryRatio = 8

// Inside a host, where the rate of the wire is known.
const (
	syncTime   = 2 * time.Microsecond
	memoryRate = memoryRatio * 10e9 / 8
)

// insideCosts are syncBytes and memoryRatio on the lane's own network.
func (l *Lane) insideCosts() (sync, ratio int) {
	if l.rate == 0 {
		return syncBytes, memoryRatio
	}
	return max(1, inBytes(syncTime, l.rate)), max(1, memoryRate/l.rate)
}

// form is a way to allreduce over several hosts.
type form int

const (
	flat form = iota
	replicated
	sharded
)

// allreduceForm chooses a form for n bytes, of which `sent` go over the wire. A deterministic lane must not choose by
// length between flat and the others, whose order of combining differs.
func (l *Lane) allreduceForm(n, sent int) form {
	h := l.hier
	if !l.mayBeHierarchical() || l.flat && l.mayChooseForm() {
		return flat
	}
	hosts, shards := len(h.hosts), h.shardsOf(n)
	blocks, _ := h.blocksOf(n, shards)
	sync, ratio := l.insideCosts()
	inside := 2 * n / ratio
	first := inside / blocks
	best, cost := sharded, 2*sync+first+max(inside-first, l.acrossCost(hosts, ceilDiv(sent, shards),
		shards, shards))
	if c := sync + n/ratio + l.acrossCost(hosts, sent, h.shards, h.shards); h.equal() && c <= cost {
		best, cost = replicated, c
	}
	if l.mayChooseForm() && l.acrossCost(l.size, sent, h.most, h.leaving) < cost {
		best = flat
	}
	return best
}

const (
	// leastShard is the least length for which a further member carries a shard: a shorter message would cost hardly
	// less.
	leastShard = 4 << 10
	// In a long tensor a block's part of each shard has stepBytes for each host, within these limits. That is enough to
	// make a step between hosts cost much more than its message, and little enough to hide the phases inside the hosts
	// behind those between them.
	stepBytes    = 512 << 10
	leastOfBlock = 1 << 20
	mostOfBlock  = 2 << 20
)

// shardsOf is the number of members of each host that carry n bytes between the hosts.
func (h *hierarchy) shardsOf(n int) int { return max(1, min(h.shards, n/h.least)) }

// blocksOf cuts n bytes, carried in shards, into blocks of equal length. It returns their number, and the length of all
// but the last.
func (h *hierarchy) blocksOf(n, shards int) (blocks, length int) {
	length = alignUp(ceilDiv(n, ceilDiv(n, h.block*shards)), lineBytes*shards)
	return ceilDiv(n, length), length
}
