package collective

// barrierDissemination is the barrier over Comm: in round i each member sends a message to the member 2^i after it, and
// receives one from the member 2^i before it. After the last round each has heard, through others, from all.
//
// Steps: log2(size), rounded up. Bytes: one a message, because a Comm may leave out a message without bytes. Always
// chosen over Comm.
type barrierDissemination struct {
	lane     *Lane
	distance int
	posted   bool
}

func (b *barrierDissemination) start(l *Lane) Op {
	*b = barrierDissemination{lane: l, distance: 1}
	return b
}

func (b *barrierDissemination) Advance() (bool, error) {
	l := b.lane
	for b.distance < l.size {
		to, from := (l.rank+b.distance)%l.size, (l.rank-b.distance+l.size)%l.size
		if !b.posted {
			memory := l.temporary(2)
			l.recv(from, memory[:1])
			l.send(to, memory[1:2])
			b.posted = true
		}
		if !l.comm.Received(from) || !l.comm.Sent(to) {
			return false, nil
		}
		b.posted = false
		l.moved++
		b.distance *= 2
	}
	l.end()
	return true, nil
}
