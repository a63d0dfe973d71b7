package collective

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// measureLinks measures the connections between the hosts of a lane over Comm, which later allreduces use: the first
// member of each host with its neighbours in the ring and its partners in doubling and halving. All hosts measure at
// the same time:
//
//	meet     with every peer: a message each way. That makes the connections, all of them at once
//	trips    with every peer: the lower member sends, the higher one answers. The shortest round trip counts
//	stream   to the successor in the ring: pieces, for a few round trips, so that TCP's window opens. The receiver
//	         notes when each comes, and its later half has the rate
//	share    an allreduce of what all hosts have found, in which all members take part
//
// Both ends of a connection know from the last trip how far apart they are. If that is more than mostTrip, they leave
// out the stream, and the rate of the link stays unknown.
//
// Steps: what a connection takes, two to ten trips, streamTrips and the allreduce. With 2 ms from host to host that is
// about 70 ms. Bytes: at most streamPieces×streamBytes to one peer, 8 bytes a message to the others. Memory: two
// pieces.
type measureLinks struct {
	lane  *Lane
	cross *Lane // the lane between the hosts; nil on a member that measures nothing
	links []Link

	peers     []linkPeer
	out, in   linkStream
	arrivals  []time.Time // of the pieces that have come
	found     []byte      // two numbers a host, to be added up
	sharing   Op
	connected bool // all peers have passed their stages
}

const (
	leastTrips  = 2
	mostTrips   = 10
	tripsTime   = 3 * time.Millisecond  // after it, and leastTrips-1, comes the last one
	mostTrip    = 20 * time.Millisecond // for a stream
	linkMessage = 8

	streamTrips  = 5                    // how many round trips a stream lasts, but at least
	streamTime   = 6 * time.Millisecond // this
	streamPieces = 64
	streamBytes  = 64 << 10
)

// linkPeer is another member with which this one measures the latency.
type linkPeer struct {
	member  int
	stage   linkStage
	trips   int
	begun   time.Time
	sent    time.Time     // the last question
	best    time.Duration // of the round trips; 0 before the first
	agreed  time.Duration // the best that both ends know
	message [2 * linkMessage]byte
}

type linkStage uint8

const (
	meeting   linkStage = iota
	asking              // a question or its answer is under way: the lower member's
	answering           // the higher member's: a question is to come
	parting             // the last answer is under way
	measured
)

// linkStream is this member's end of a stream.
type linkStream struct {
	member int
	limit  time.Duration
	begun  time.Time
	pieces int
	over   bool // the last piece is posted
	piece  []byte
}

// Hosts is the number of hosts of the lane's members.
func (l *Lane) Hosts() int {
	switch {
	case l.hier != nil:
		return len(l.hier.hosts)
	case l.comm != nil:
		return l.size
	}
	return 1
}

// MeasureLinks measures the links between the hosts of a lane over Comm, and tells all members the same. links gets an
// entry for each host, in the order of transport.Lane.Hosts: the longest latency to one of its peers, and the rate from
// its predecessor in the ring.
//
// awaited lists the members that have not answered this one so far, ascending. It is empty on a member that asks
// nobody, and once all have answered.
func (l *Lane) MeasureLinks(links []Link) (op Op, awaited func() []int) {
	none := func() []int { return nil }
	if l.comm == nil || len(links) != l.Hosts() {
		return l.refuse("measure links: %d of %d hosts, or no connections", len(links), l.Hosts()), none
	}
	m := &measureLinks{lane: l, links: links, found: make([]byte, 16*len(links))}
	if m.cross = l; l.hier != nil {
		m.cross = l.hier.cross
		if l.hier.index > 0 {
			m.cross = nil
		}
	}
	if m.cross != nil {
		m.begin()
	}
	return m, m.awaited
}

func (m *measureLinks) awaited() (members []int) {
	for i := range m.peers {
		p := &m.peers[i]
		switch h := m.lane.hier; {
		case p.stage == measured:
		case h != nil:
			members = append(members, h.hosts[p.member][h.index])
		default:
			members = append(members, p.member)
		}
	}
	return members
}

func (m *measureLinks) begin() {
	x := m.cross
	x.begin()
	for _, p := range linkPeers(x.rank, x.size) {
		m.peers = append(m.peers, linkPeer{member: p})
	}
	for i := range m.peers {
		p := &m.peers[i]
		p.receive(x)
		p.send(x, 0)
	}
	m.out.member, m.in.member = (x.rank+1)%x.size, (x.rank+x.size-1)%x.size
	m.out.piece, m.in.piece = make([]byte, streamBytes), make([]byte, streamBytes)
}

// linkPeers are the members with which a member exchanges data in allreduces, ascending.
func linkPeers(rank, size int) (peers []int) {
	d := allreduceDoubling{lane: &Lane{rank: rank}}
	for d.last = 1; 2<<(d.last-1) <= size; d.last++ {
	}
	d.extra = size - 1<<(d.last-1)
	peers = append(peers, (rank+1)%size, (rank+size-1)%size)
	for ; d.round <= d.last; d.round++ {
		if d.plan(); d.toPeer || d.fromPeer {
			peers = append(peers, d.peer)
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

func (p *linkPeer) receive(x *Lane) { x.recv(p.member, p.message[:linkMessage]) }

func (p *linkPeer) send(x *Lane, v uint64) {
	binary.LittleEndian.PutUint64(p.message[linkMessage:], v)
	x.send(p.member, p.message[linkMessage:])
}

func (m *measureLinks) Advance() (bool, error) {
	if m.cross != nil && !m.connected {
		m.connected = true
		for i := range m.peers {
			p := &m.peers[i]
			for p.step(m.cross) {
			}
			m.connected = m.connected && p.stage == measured
		}
		if !m.connected {
			return false, nil
		}
		m.out.open(m)
		if m.in.open(m); !m.in.over {
			m.cross.recv(m.in.member, m.in.piece)
		}
	}
	if m.sharing == nil {
		if m.cross != nil && !m.stream() {
			return false, nil
		}
		m.share()
	}
	done, err := m.sharing.Advance()
	if done && err == nil {
		for i := range m.links {
			number := func(k int) int64 { return int64(binary.NativeEndian.Uint64(m.found[16*i+8*k:])) }
			m.links[i] = Link{time.Duration(number(0)), int(number(1))}
		}
	}
	return done, err
}

// step passes to the next message, and reports whether it could.
func (p *linkPeer) step(x *Lane) bool {
	if p.stage == measured || !x.comm.Received(p.member) || !x.comm.Sent(p.member) {
		return false
	}
	x.moved++
	now := time.Now()
	switch p.stage {
	case meeting:
		if p.receive(x); x.rank > p.member {
			p.stage = answering
			return true
		}
		p.stage, p.begun, p.sent = asking, now, now
		p.send(x, 0)
	case asking:
		if trip := max(1, now.Sub(p.sent)); p.best == 0 || trip < p.best {
			p.best = trip
		}
		if p.agreed > 0 { // the last question
			p.stage = measured
			return true
		}
		p.trips++
		question := uint64(0)
		if p.trips >= leastTrips-1 && (p.trips == mostTrips-1 || now.Sub(p.begun) > tripsTime) {
			// the next one is the last
			p.agreed = p.best
			question = uint64(p.best)
		}
		p.receive(x)
		p.sent = time.Now()
		p.send(x, question)
	case answering:
		p.agreed = time.Duration(binary.LittleEndian.Uint64(p.message[:]))
		if p.agreed > 0 {
			p.stage = parting
		} else {
			p.receive(x)
		}
		p.send(x, 0)
	case parting:
		p.best, p.stage = p.agreed, measured
	}
	return true
}

// open decides whether there is a stream to or from the member.
func (s *linkStream) open(m *measureLinks) {
	i := slices.IndexFunc(m.peers, func(p linkPeer) bool { return p.member == s.member })
	trip := m.peers[i].agreed
	s.begun, s.limit, s.over = time.Now(), max(streamTime, streamTrips*trip), trip > mostTrip
}

// stream sends and receives pieces, and reports that both streams have ended.
func (m *measureLinks) stream() bool {
	x, out, in := m.cross, &m.out, &m.in
	for !out.over && x.comm.Sent(out.member) {
		out.pieces++
		out.over = out.pieces == streamPieces || out.pieces > 1 && time.Since(out.begun) > out.limit
		out.piece[0] = 0
		if out.over {
			out.piece[0] = 1
		}
		x.send(out.member, out.piece)
	}
	for !in.over && x.comm.Received(in.member) {
		x.moved++
		m.arrivals = append(m.arrivals, time.Now())
		if in.over = in.piece[0] == 1; !in.over {
			x.recv(in.member, in.piece)
		}
	}
	return out.over && in.over && x.comm.Sent(out.member)
}

// rate is what the later half of the pieces has come at; 0 if there was no stream.
func (m *measureLinks) rate() int {
	n := len(m.arrivals)
	if n < 2 {
		return 0
	}
	from := max(0, n/2-1)
	took := max(time.Microsecond, m.arrivals[n-1].Sub(m.arrivals[from]))
	return int(float64((n-1-from)*streamBytes) / took.Seconds())
}

// share starts the allreduce that gives all members what all hosts have found.
func (m *measureLinks) share() {
	if x := m.cross; x != nil {
		latency := time.Duration(0)
		for i := range m.peers {
			latency = max(latency, m.peers[i].best/2)
		}
		at := m.found[16*x.rank:]
		binary.NativeEndian.PutUint64(at, uint64(latency))
		binary.NativeEndian.PutUint64(at[8:], uint64(m.rate()))
		x.end()
	}
	m.sharing = m.lane.Allreduce(tensor.Int64, tensor.Sum, m.found, m.found, 1)
}

// Slowest is what holds operations among some of the hosts back: the longest latency, and the lowest rate.
func Slowest(links []Link, hosts []int) (slowest Link) {
	for i, h := range hosts {
		k := links[h]
		if i == 0 || k.Rate < slowest.Rate {
			slowest.Rate = k.Rate
		}
		slowest.Latency = max(slowest.Latency, k.Latency)
	}
	return slowest
}
