package collective

// barrierHierarchical is the barrier over several hosts: one inside each host,
// then one between the hosts. If all hosts have equally many members, the members with the same index make the second
// barrier. Otherwise the first members of the hosts make it, and a further barrier inside each host lets the others go.
//
// Steps: one or two synchronisations inside the host, and log2(hosts) messages,
// rounded up. Bytes: one a message. Always chosen over several hosts.
type barrierHierarchical struct {
	lane   *Lane
	inside pass
	across pass
}

func (b *barrierHierarchical) start(l *Lane) Op {
	*b = barrierHierarchical{lane: l}
	b.inside.op = l.hier.local.Barrier()
	return b
}

func (b *barrierHierarchical) Advance() (bool, error) {
	l := b.lane
	for {
		ended, err := b.inside.advance()
		if !ended && err == nil {
			ended, err = b.across.advance()
		}
		switch {
		case err != nil || ended && !b.next():
			l.end()
			return true, err
		case !ended:
			return false, nil
		}
	}
}

// next starts the next part. It returns false if there is none.
func (b *barrierHierarchical) next() bool {
	h := b.lane.hier
	switch {
	case b.inside.done == 2 || b.across.done == 1 && h.equal():
		return false
	case b.across.done == 0 && (h.equal() || h.index == 0):
		b.across.op = h.cross.Barrier()
	default:
		b.inside.op = h.local.Barrier()
	}
	b.lane.moved++
	return true
}
