// Package rendezvous lets the ranks of a job find one another, through one server in the launcher, and brings them the
// job's news: who died, and how. Package world joins through it; package launch runs the server.
//
// Each rank keeps one connection, proved by package auth, while its generation lives. The connection carries
// all-gathers of small values (Exchange), questions that a rank's session answers by itself (Ask), deaths from the
// launcher, and reports to it. It carries no tensors, and an idle connection uses no CPU.
package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/logging"
)

// Protocol is the version of the messages between ranks and launcher.
const Protocol = 5

// maxStrangers is the most unproved connections at a time, in addition to one for each rank.
const maxStrangers = 64

const (
	proofTimeout = 10 * time.Second // for a connection to prove the secret
	writeTimeout = 10 * time.Second // for a rank to take one frame
	// successionTime is how long a joining rank waits until the connection of its earlier process is closed.
	successionTime = 2 * time.Second
	// lossTime is how long the server waits, after it lost a connection, for the launcher's report of a death, which
	// says more.
	lossTime = time.Second
	// freshTime is the greatest age of an answer that the server gives to another asker.
	freshTime = time.Second
	// drainTime is how long Died waits, after a process ended with code 0, until its connection is closed: then the
	// server knows whether the process had left properly.
	drainTime = 250 * time.Millisecond
)

// Server is the launcher's end. All methods are safe on any goroutine.
type Server struct {
	// ServedBy names the process that serves, such as "rank 0"; empty for the launcher. Set before Serve.
	ServedBy string
	// Certificates are for ranks that begin TLS. If they are files, all must. Set before Serve.
	Certificates auth.Certificates
	// Knocks records connections that do not prove the secret. Optional. Set before Serve; Close closes it.
	Knocks *auth.Knocks
	// Epoch distinguishes the generations of this server from those of the job's other servers. Set before Serve.
	Epoch uint64
	// Figures, if set, gets the ranks' answers to AskFigures, those of one rank one after the other. An empty value
	// means that the rank has no figures yet. Set before Serve.
	Figures func(rank int, generation uint64, host string, value []byte)
	// Failed, if set, gets each death that is a failure, on the goroutine that calls Died.
	Failed func(Death)
	// Judged, if set, gets the number of a generation whose operations have failed, and the Verdict. It must neither
	// block nor call the Server. Set before Serve.
	Judged func(generation uint64, v Verdict)

	key  []byte
	size int
	// How long to wait for news after a connection has closed. Tests shorten it.
	successionTime, lossTime time.Duration
	freshTime, gatherTime    time.Duration
	wg                       sync.WaitGroup
	lobby                    *auth.Lobby // of connections that have not proved the secret

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	peers     map[*peer]struct{} // connected now
	inspected []int              // ranks: see Inspect
	ranks     []standing
	someEnded bool          // some rank has ended, by its standing: see hopeless
	deaths    []Death       // in order of arrival
	failures  []Failure     // reports and failed deaths, in the order in which they happened: see First
	gens      []*generation // gens[i] has the agreed number i+1
	verdict   *Verdict      // of the last generation that failed
}

// standing is the server's state of one rank over all generations.
type standing struct {
	host     string // where the launcher started it; "" if unknown
	pid      int
	joined   bool   // at least once
	lost     bool   // one of its connections has ended without leave
	ended    string // set once it left and exited with code 0, so that it will not come again
	report   string
	reported bool
	peers    []*peer // its connected peers
}

// peer is one proved connection.
type peer struct {
	hello
	conn net.Conn
	gen  *generation
	left bool          // it has said leave. Server.mu
	gone chan struct{} // closed when the server has removed the connection

	queued int           // how many bytes queue has. Server.mu
	queue  [][]byte      // Server.mu
	wake   chan struct{} // capacity 1: there is something to deliver

	relay
	pulse   liveness
	telling telling
	clock   Clock // of the peer's host
}

// NewServer returns the server of a job of size ranks whose secret is key. Call Serve next.
func NewServer(key []byte, size int) *Server {
	return &Server{
		key:            bytes.Clone(key),
		size:           size,
		successionTime: successionTime,
		lossTime:       lossTime,
		freshTime:      freshTime,
		gatherTime:     gatherTime,
		lobby:          auth.NewLobby(maxStrangers + size),
		conns:          map[net.Conn]struct{}{},
		peers:          map[*peer]struct{}{},
		ranks:          make([]standing, size),
	}
}

// Serve accepts connections on l until Close, which closes l and makes it
// return nil.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	for {
		conn, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// For instance, descriptors have run out. The connected ranks go on, and the pause keeps the loop from
			// spinning.
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if !s.hold(conn) {
			conn.Close()
			return nil
		}
		guard.Go("the rendezvous", s.failed, func() { s.attend(conn) })
	}
}

// failed ends the rendezvous after a panic in it: every rank learns that its server is gone, so no rank waits for ever.
func (s *Server) failed(err error) {
	logging.Print(slog.LevelError, "gorovod", err.Error())
	guard.Go("the end of the rendezvous", func(error) {}, func() { s.Close() })
}

// hold registers a connection, so that Close can end it.
func (s *Server) hold(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[conn] = struct{}{}
	s.lobby.Enter(conn)
	s.wg.Add(1)
	return true
}

// attend serves one connection from the proof to its end, on a goroutine of its own.
func (s *Server) attend(conn net.Conn) {
	defer s.wg.Done()
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	conn.SetDeadline(time.Now().Add(proofTimeout))
	raw, err := auth.Accept(conn, s.key)
	stayed := s.lobby.Leave(conn)
	if err != nil {
		if !s.isClosed() {
			s.Knocks.Note(conn, err)
		}
		return // an unproved connection brings no news of a rank
	}
	if !stayed {
		return
	}
	p := &peer{conn: conn, gone: make(chan struct{}), wake: make(chan struct{}, 1)}
	if err := json.Unmarshal(raw, &p.hello); err != nil {
		return
	}
	if p.TLS {
		sealed, err := s.Certificates.Seal(conn, s.key, false)
		if err != nil {
			s.Knocks.Note(conn, err)
			return
		}
		p.conn = sealed
	}
	conn.SetDeadline(time.Time{})
	p.Host = clip(p.Host, maxHost)
	if !sameHost(conn) {
		p.clock.Hear(p.Now, time.Time{}, time.Now())
	}
	if text := s.vet(p); text != "" {
		frame, err := encode(message{Type: typeRefused, Text: text})
		if err == nil {
			p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			p.conn.Write(frame)
		}
		return
	}
	s.wg.Add(1)
	guard.Go("the rendezvous", s.failed, func() { s.deliver(p) })
	for {
		m, err := decode(p.conn)
		if err != nil {
			break
		}
		if m.Type == typeFigures {
			if !s.told(p, m) {
				break
			}
			continue
		}
		if !s.take(p, m) {
			break
		}
	}
	s.dismiss(p)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// vet admits p, or returns the reason why not. A peer without TLS, where a certificate is wanted, is told why, and the
// ranks hear nothing of it.
func (s *Server) vet(p *peer) (refusal string) {
	if err := s.Certificates.Plain(); err != nil && !p.TLS {
		s.Knocks.Note(p.conn, err)
		return err.Error()
	}
	return s.admit(p)
}

// admit adds p to its generation, or returns the reason why not.
func (s *Server) admit(p *peer) (refusal string) {
	deadline := time.Now().Add(s.successionTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Rank < 0 || p.Rank >= s.size || p.Size != s.size || p.Protocol != Protocol || p.Shape != Shape() {
		// p can never take part. Ranks that wait for others must learn that, too.
		text := s.strange(p)
		if p.Rank >= 0 && p.Rank < s.size && !s.ranks[p.Rank].joined {
			// p's death follows; it may be the first news of p that the others get.
			s.ranks[p.Rank].report, s.ranks[p.Rank].reported = text, true
		}
		p.gen = s.latest(p.Generation)
		p.gen.odd = text
		s.endExchanges(p.gen)
		return text
	}
	for {
		if s.closed {
			return "the launcher is ending"
		}
		old := s.connected(p.Rank, p.Generation)
		if old == nil {
			break
		}
		// The connection of a process that has just ended may still be there.
		wait := time.Until(deadline)
		if wait <= 0 {
			return fmt.Sprintf("rank %d has already joined from host %s (pid %d): are two processes running "+
				"as rank %d?", p.Rank, old.Host, old.PID, p.Rank)
		}
		s.mu.Unlock()
		select {
		case <-old.gone:
		case <-time.After(wait):
		}
		s.mu.Lock()
	}
	g := s.next(p.Rank, p.Generation)
	p.gen = g
	g.members[p.Rank] = p
	s.peers[p] = struct{}{}
	r := &s.ranks[p.Rank]
	r.joined, r.peers = true, append(r.peers, p)
	s.send(p, message{Type: typeWelcome, Generation: g.number, Text: s.ServedBy})
	for i := range s.deaths {
		s.send(p, message{Type: typeDeath, Death: &s.deaths[i]})
	}
	if g.odd == "" {
		g.odd = g.otherArch(p)
	}
	s.endExchanges(g)
	return ""
}

// strange says why p does not belong to this job; empty if it does.
func (s *Server) strange(p *peer) string {
	switch {
	case p.Protocol != Protocol:
		return fmt.Sprintf("rank %d on host %s speaks protocol version %d, the launcher %d: install the same "+
			"gorovod everywhere", p.Rank, p.Host, p.Protocol, Protocol)
	case p.Shape != Shape():
		return fmt.Sprintf("rank %d on host %s has another build of gorovod, whose messages differ (%s, the "+
			"launcher's %s): install the same gorovod everywhere", p.Rank, p.Host, clip(p.Shape, 16), Shape())
	case p.Size != s.size:
		return fmt.Sprintf("rank %d on host %s was started as one of %d ranks, but this job has %d", p.Rank, p.Host,
			p.Size, s.size)
	}
	return fmt.Sprintf("rank %d on host %s is not one of this job's ranks 0 to %d", p.Rank, p.Host, s.size-1)
}

func (s *Server) connected(rank int, claimed uint64) *peer {
	for _, p := range s.ranks[rank].peers {
		if p.Generation == claimed {
			return p
		}
	}
	return nil
}

// dismiss removes p from the server, and tells p's generation.
func (s *Server) dismiss(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
	r := &s.ranks[p.Rank]
	r.peers = slices.DeleteFunc(r.peers, func(q *peer) bool { return q == p })
	close(p.gone)
	s.unask(p)
	if p.left {
		p.gen.gone[p.Rank] = s.farewell(p, "has left")
		s.endExchanges(p.gen)
		return
	}
	r.lost = true
	time.AfterFunc(s.lossTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.gen.gone[p.Rank] = s.farewell(p, "has closed its connection to the launcher")
		s.endExchanges(p.gen)
	})
}

func (s *Server) farewell(p *peer, what string) string {
	text := fmt.Sprintf("rank %d on host %s (pid %d) %s", p.Rank, p.Host, p.PID, what)
	if r := s.ranks[p.Rank]; r.reported {
		text += "; it had reported: " + r.report
	}
	return text
}

// take handles one frame of p. False: end the connection.
func (s *Server) take(p *peer, m message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.pulse.alive(time.Now())
	switch m.Type {
	case typePong:
	case typeBeat:
		s.beat(p, time.Now())
	case typeExchange:
		return s.contribute(p, m)
	case typeGiveUp:
		s.giveUp(p, m)
	case typeAsk:
		s.ask(p, m.Use)
	case typeAnswer:
		return s.passOn(p, m.Value)
	case typeReport:
		if r := &s.ranks[p.Rank]; !r.reported {
			r.report, r.reported = clip(m.Text, maxText), true
			about := m.About - 1
			if about < 0 || about >= s.size {
				about = p.Rank
			}
			s.note(Failure{Rank: p.Rank, About: about, Text: r.report, At: p.clock.Here(m.At, time.Now()),
				reported: true})
		}
	case typeCause:
		s.judge(p, m)
	case typeVictim:
		s.blame(p, m)
	case typeLeave:
		p.left = true
		return false
	default:
		return false
	}
	return true
}

// send queues m for p. It never blocks: the server cuts off a rank that does not read.
func (s *Server) send(p *peer, m message) {
	frame, err := encode(m)
	if err != nil {
		panic(err) // every text in m has been clipped
	}
	s.sendFrame(p, frame)
}

func (s *Server) sendFrame(p *peer, frame []byte) {
	if p.queued += len(frame); p.queued > maxQueue {
		p.conn.Close()
		return
	}
	p.queue = append(p.queue, frame)
	p.rouse()
}

// rouse wakes deliver.
func (p *peer) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// deliver is the goroutine that writes to p.
func (s *Server) deliver(p *peer) {
	defer s.wg.Done()
	for {
		select {
		case <-p.wake:
		case <-p.gone:
			return
		}
		s.mu.Lock()
		frames := net.Buffers(p.queue)
		p.queue, p.queued = nil, 0
		answers := p.answers()
		s.mu.Unlock()
		p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := frames.WriteTo(p.conn)
		if err == nil && len(answers) > 0 {
			// The answers can be more than the kernel buffers, and a rank that is stopped for a while must find its
			// connection when it goes on.
			p.conn.SetWriteDeadline(time.Time{})
			_, err = answers.WriteTo(p.conn)
		}
		if err != nil {
			// The rank is gone, or does not read. Frames that it sent before, such as a report, still count. Then
			// attend ends.
			p.conn.SetReadDeadline(time.Now().Add(drainTime))
			<-p.gone
			return
		}
	}
}

// Started notes where a rank's process runs, for messages about ranks that do not come.
func (s *Server) Started(rank int, host string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks[rank].host, s.ranks[rank].pid = clip(host, maxHost), pid
}

// Awaited counts the ranks that have not joined, by the host on which they were started; "" for ranks that were not
// started.
func (s *Server) Awaited() (hosts map[string]int) {
	hosts = map[string]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.ranks {
		if !s.ranks[r].joined {
			hosts[s.ranks[r].host]++
		}
	}
	return hosts
}

// Died tells every rank of every generation, now and later, that the process of d.Rank has ended, or takes no part
// (d.Apart). It returns d with the server's knowledge added. Later ranks are not told of a rank that left properly and
// exited with code 0 (d.InOrder). Died can block for drainTime.
func (s *Server) Died(d Death) Death {
	if !d.Failed() {
		s.Drain(drainTime, d.Rank)
	}
	d = s.died(d)
	if d.Failed() && s.Failed != nil {
		s.Failed(d)
	}
	return d
}

func (s *Server) died(d Death) Death {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.ranks[d.Rank]
	d.Host, d.Stderr = clip(d.Host, maxHost), clip(d.Stderr, maxText)
	d.Lost, d.Told, d.Apart = clip(d.Lost, maxText), clip(d.Told, maxText), clip(d.Apart, maxText)
	d.NeverJoined = !r.joined
	if r.reported {
		d.Reason = r.report
	}
	if d.Failed() {
		if d.At.IsZero() {
			d.At = time.Now()
		}
		s.note(Failure{Rank: d.Rank, About: d.Rank, Text: d.String(), At: d.At})
	}
	connected := slices.ContainsFunc(r.peers, func(p *peer) bool { return !p.left })
	d.InOrder = !d.Failed() && !d.NeverJoined && !r.lost && !connected
	if d.InOrder {
		r.ended, s.someEnded = d.String(), true
	} else {
		s.deaths = append(s.deaths, d)
	}
	for p := range s.peers {
		s.send(p, message{Type: typeDeath, Death: &d})
	}
	for _, g := range s.gens {
		s.endExchanges(g)
	}
	return d
}

// Drain waits until the server has read everything that ended processes have sent. It waits at most limit, because a
// descendant can hold a connection open.
func (s *Server) Drain(limit time.Duration, ranks ...int) {
	timeout := time.After(limit)
	var peers []*peer
	s.mu.Lock()
	for _, r := range ranks {
		peers = append(peers, s.ranks[r].peers...)
	}
	s.mu.Unlock()
	for _, p := range peers {
		select {
		case <-p.gone:
		case <-timeout:
			return
		}
	}
}

// Joined lists the ranks that have joined at least once.
func (s *Server) Joined() []int { return s.list(true) }

// Missing lists the ranks that have never joined.
func (s *Server) Missing() []int { return s.list(false) }

func (s *Server) list(joined bool) (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.ranks {
		if s.ranks[r].joined == joined {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Close ends every connection and listener, and waits for the connections' goroutines. Closing twice is allowed.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.Knocks.Close()
	return nil
}
