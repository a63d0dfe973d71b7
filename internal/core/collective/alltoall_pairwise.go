package collective

// alltoallPairwise is the alltoall over Comm: at step i each member sends one message to the member i after it, and
// receives one from the member i before it. It sends no message without bytes. A few steps are under way at a time, so
// that one long message holds up no other, and no member gets too many at once.
//
// A step's message waits only until the messages of earlier steps have left, on both sides. So the earliest undelivered
// message can always be delivered.
//
// Steps: size-1. Bytes: each member sends and receives its data once. Memory: none. Always chosen over Comm.
type alltoallPairwise struct {
	lane     *Lane
	in, out  []byte
	sent     int // steps whose message has been posted, or is not needed
	received int
	sends    [pairwiseSteps]int // distance to the members that are being sent to; 0: none
	receives [pairwiseSteps]int // distance to the members that are being received from
}

// pairwiseSteps is the most messages under way at a time in each direction.
const pairwiseSteps = 4

// start reads the places of each member's data from l.offsets for the input, and from l.places for the output.
func (a *alltoallPairwise) start(l *Lane, in, out []byte) Op {
	*a = alltoallPairwise{lane: l, in: in, out: out}
	copy(out[l.places[l.rank]:l.places[l.rank+1]], in[l.offsets[l.rank]:])
	return a
}

func (a *alltoallPairwise) Advance() (bool, error) {
	for {
		before := a.lane.moved
		if !a.step() {
			a.lane.end()
			return true, nil
		}
		if a.lane.moved == before {
			return false, nil
		}
	}
}

// step ends the messages that have been delivered and posts the next ones. It
// reports whether any are under way.
func (a *alltoallPairwise) step() (waiting bool) {
	l := a.lane
	for i := range pairwiseSteps {
		if a.receives[i] != 0 && l.comm.Received(a.before(a.receives[i])) {
			a.receives[i] = 0
			l.moved++
		}
		if a.receives[i] == 0 {
			a.receives[i] = a.receiveNext()
		}
		if a.sends[i] != 0 && l.comm.Sent(a.behind(a.sends[i])) {
			a.sends[i] = 0
			l.moved++
		}
		if a.sends[i] == 0 {
			a.sends[i] = a.sendNext()
		}
		waiting = waiting || a.receives[i] != 0 || a.sends[i] != 0
	}
	return waiting
}

func (a *alltoallPairwise) behind(distance int) int { return (a.lane.rank + distance) % a.lane.size }

func (a *alltoallPairwise) before(distance int) int {
	return (a.lane.rank - distance + a.lane.size) % a.lane.size
}

// sendNext posts the next message that has bytes, and returns its step; 0 if there is none left.
func (a *alltoallPairwise) sendNext() int {
	l := a.lane
	for a.sent < l.size-1 {
		a.sent++
		to := a.behind(a.sent)
		if p := a.in[l.offsets[to]:l.offsets[to+1]]; len(p) > 0 {
			l.send(to, p)
			return a.sent
		}
	}
	return 0
}

// receiveNext does the same for receives.
func (a *alltoallPairwise) receiveNext() int {
	l := a.lane
	for a.received < l.size-1 {
		a.received++
		from := a.before(a.received)
		if p := a.out[l.places[from]:l.places[from+1]]; len(p) > 0 {
			l.recv(from, p)
			return a.received
		}
	}
	return 0
}
