package collective

// allgatherHierarchical is the allgather over several hosts whose members have consecutive numbers. So the
// contributions of a host's members form one block of the output:
//
//	own     an allgather inside each host of its members' contributions
//	across  each member with a shard sends that shard of its host's block to the members with the same index on the
//	        other hosts, one host after the other
//	others  an allgather inside the host puts the shards of each other host's block together, in the order in which
//	        they arrive
//
// Blocks are cut into slices: some slices travel while others are gathered. If there is little data, the first member
// of each host gathers all blocks, and broadcasts the output inside its host.
//
// Steps: a synchronisation inside the host for each host and slice, or two of little data; hosts-1 messages a slice.
// Bytes: a host receives all contributions but its own, and sends its own to each other host. Memory: none. Chosen for
// such hosts unless a hint forbids it.
type allgatherHierarchical struct {
	lane   *Lane
	in     []byte
	out    []byte
	shards int
	slices int
	length int // of all slices of a block but its last
	window int // messages under way at a time in each direction

	inside pass
	across pass // of little data only

	// Messages are counted over slices and then over the distances of the hosts.
	posted   int // receives posted, or not needed
	arrived  int
	sends    int // sends posted, or not needed
	departed int
}

// gatherBytes is the most that the first members gather for each other host. Passing that many bytes on twice costs
// about as much as a synchronisation.
const gatherBytes = 3 * syncBytes

// start reads the contributions' places from l.offsets.
func (a *allgatherHierarchical) start(l *Lane, in, out []byte) Op {
	h := l.hier
	longest := 0
	h.blocks[len(h.hosts)] = len(out)
	for host := len(h.hosts) - 1; host >= 0; host-- {
		h.blocks[host] = l.offsets[h.hosts[host][0]]
		longest = max(longest, h.blocks[host+1]-h.blocks[host])
	}
	shards := h.shardsOf(longest)
	slices, length := h.blocksOf(longest, shards)
	*a = allgatherHierarchical{
		lane: l, in: in, out: out, shards: shards, slices: slices, length: length,
		window: min(pairwiseSteps, len(h.hosts)-1),
	}
	if len(out) <= h.little {
		a.slices = 0
	}
	for i, m := range h.hosts[h.host] {
		h.counts[i] = int64(l.offsets[m+1] - l.offsets[m])
	}
	a.inside.op = h.local.Allgather(in, out[h.blocks[h.host]:h.blocks[h.host+1]], h.counts)
	return a
}

func (a *allgatherHierarchical) Advance() (bool, error) { return a.lane.drive(a) }

// stepLittle is step for little data, which the first members gather.
func (a *allgatherHierarchical) stepLittle() (done bool, err error) {
	h := a.lane.hier
	ended, err := a.inside.advance()
	if err != nil || a.inside.done == 2 {
		return true, err
	}
	if ended && h.index == 0 {
		a.lane.moved++
		for host := range h.parts {
			h.parts[host] = int64(h.blocks[host+1] - h.blocks[host])
		}
		a.across.op = h.cross.Allgather(a.out[h.blocks[h.host]:h.blocks[h.host+1]], a.out, h.parts)
	}
	if _, err := a.across.advance(); err != nil {
		return true, err
	}
	if a.inside.idle() && (h.index > 0 || a.across.done == 1) {
		a.lane.moved++
		a.inside.op = h.local.Broadcast(0, a.out)
	}
	return false, nil
}

// step moves messages between the hosts, and gathers shards that have arrived inside the host.
func (a *allgatherHierarchical) step() (done bool, err error) {
	if a.slices == 0 {
		return a.stepLittle()
	}
	if _, err := a.inside.advance(); err != nil {
		return true, err
	}
	total := a.slices * (len(a.lane.hier.hosts) - 1)
	if a.lane.hier.index < a.shards {
		a.receive(total)
		if a.inside.done > 0 {
			a.send(total)
		}
	} else {
		a.arrived, a.departed = total, total
	}
	if a.inside.idle() {
		next := a.inside.done - 1 // the first is that of its own block
		switch {
		case next == total:
			return a.departed == total, nil
		case next < a.arrived:
			a.gather(next)
		}
	}
	return false, nil
}

// message returns the content of the message with the given number: slice k of a host's block, as a range of the
// output.
func (a *allgatherHierarchical) message(i int) (host, lo, hi int) {
	h := a.lane.hier
	distance := i%(len(h.hosts)-1) + 1
	host = (h.host - distance + len(h.hosts)) % len(h.hosts)
	lo, hi = a.slice(host, i/(len(h.hosts)-1))
	return host, lo, hi
}

// slice is the range of the output that is slice k of a host's block.
func (a *allgatherHierarchical) slice(host, k int) (lo, hi int) {
	h := a.lane.hier
	end := h.blocks[host+1]
	lo = min(h.blocks[host]+k*a.length, end)
	return lo, min(lo+a.length, end)
}

// receive ends the receives that have been filled, and posts the next ones. The receives within the window are from
// different hosts.
func (a *allgatherHierarchical) receive(total int) {
	h := a.lane.hier
	for {
		switch {
		case a.posted < min(total, a.arrived+a.window):
			host, lo, hi := a.message(a.posted)
			if from, to := h.shard(hi-lo, a.shards, h.index); from < to {
				h.cross.recv(host, a.out[lo+from:lo+to])
			}
			a.posted++
		case a.arrived < a.posted && a.hasArrived(a.arrived):
			a.lane.moved++
			a.arrived++
		default:
			return
		}
	}
}

func (a *allgatherHierarchical) hasArrived(i int) bool {
	host, _, _ := a.message(i)
	return a.lane.hier.cross.comm.Received(host)
}

// send does the same for sends.
func (a *allgatherHierarchical) send(total int) {
	h := a.lane.hier
	to := func(i int) int { return (h.host + i%(len(h.hosts)-1) + 1) % len(h.hosts) }
	for {
		switch {
		case a.sends < min(total, a.departed+a.window):
			lo, hi := a.slice(h.host, a.sends/(len(h.hosts)-1))
			if from, end := h.shard(hi-lo, a.shards, h.index); from < end {
				h.cross.send(to(a.sends), a.out[lo+from:lo+end])
			}
			a.sends++
		case a.departed < a.sends && h.cross.comm.Sent(to(a.departed)):
			a.lane.moved++
			a.departed++
		default:
			return
		}
	}
}

// gather puts together the slice to which the message with the given number, a shard, belongs.
func (a *allgatherHierarchical) gather(i int) {
	h := a.lane.hier
	a.lane.moved++
	_, lo, hi := a.message(i)
	from, to := h.deal(hi-lo, a.shards)
	a.inside.op = h.local.Allgather(a.out[lo+from:lo+to], a.out[lo:hi], h.counts)
}
