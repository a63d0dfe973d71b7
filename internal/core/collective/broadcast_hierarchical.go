package collective

import "slices"

// broadcastHierarchical is the broadcast over several hosts. The data is cut into
// blocks as in allreduceHierarchical. The root broadcasts a block inside its host. Then each member of that host with a
// shard broadcasts the shard to the members with the same index on the other hosts. There an allgather inside the host
// puts the block together.
//
// Steps: two synchronisations inside a host, and those of the broadcast between
// the hosts, a block; overlapped between blocks. Bytes: those between the hosts
// for n, once a host. Memory: none. Always chosen over several hosts.
type broadcastHierarchical struct {
	lane      *Lane
	buf       []byte
	root      int // lane member
	rootHost  int
	rootIndex int // on its host
	shards    int
	length    int // of all blocks but the last
	blocks    int
	inside    pass
	across    pass
}

func (b *broadcastHierarchical) start(l *Lane, root int, buf []byte) Op {
	shards := l.hier.shardsOf(len(buf))
	blocks, length := l.hier.blocksOf(len(buf), shards)
	*b = broadcastHierarchical{lane: l, buf: buf, root: root, shards: shards, length: length, blocks: blocks}
	b.rootHost = l.hier.hostOf(root)
	b.rootIndex = slices.Index(l.hier.hosts[b.rootHost], root)
	return b
}

func (b *broadcastHierarchical) Advance() (bool, error) { return b.lane.drive(b) }

func (b *broadcastHierarchical) step() (done bool, err error) {
	if _, err := b.inside.advance(); err != nil {
		return true, err
	}
	if _, err := b.across.advance(); err != nil {
		return true, err
	}
	source := b.lane.hier.host == b.rootHost
	if b.across.idle() && b.across.done < b.blocks && (!source || b.across.done < b.inside.done ||
		b.lane.rank == b.root) {
		b.cross(b.across.done)
	}
	if b.inside.idle() && b.inside.done < b.blocks && (source || b.inside.done < b.across.done) {
		b.share(b.inside.done, source)
	}
	return b.inside.done == b.blocks && b.across.done == b.blocks, nil
}

// block is the block with the given number and this member's shard of it.
func (b *broadcastHierarchical) block(i int) (block, shard []byte) {
	block = b.buf[i*b.length : min((i+1)*b.length, len(b.buf))]
	lo, hi := b.lane.hier.deal(len(block), b.shards)
	return block, block[lo:hi]
}

func (b *broadcastHierarchical) cross(i int) {
	b.lane.moved++
	if _, shard := b.block(i); len(shard) > 0 {
		b.across.op = b.lane.hier.cross.Broadcast(b.rootHost, shard)
	} else {
		b.across.done++
	}
}

// share gives the block to all members of this host.
func (b *broadcastHierarchical) share(i int, source bool) {
	b.lane.moved++
	h := b.lane.hier
	if block, shard := b.block(i); source {
		b.inside.op = h.local.Broadcast(b.rootIndex, block)
	} else {
		b.inside.op = h.local.Allgather(shard, block, h.counts)
	}
}
