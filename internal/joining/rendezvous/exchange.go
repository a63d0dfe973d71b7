package rendezvous

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// generation is one world: the ranks that joined with the same number, each at most once. A rank may join twice with
// one number, because its command runs two programs one after the other; the second time it gets into another
// generation. Guarded by Server.mu.
type generation struct {
	number    uint64 // agreed: unique in the job
	claimed   uint64 // the number that the ranks gave
	members   map[int]*peer
	first     *peer          // the member that joined first
	gone      map[int]string // the members that can contribute no more, each with the reason
	odd       string         // why this generation can never be complete; "" if it can
	exchanges map[exchangeKey]*exchange
	verdict   *Verdict // why its operations have ended; nil until then

	usualAt time.Time     // when usually was found
	usually time.Duration // see usual
}

type exchangeKey struct {
	name string
	use  uint64
}

// exchange is an all-gather that some ranks wait for.
type exchange struct {
	exchangeKey
	values map[int][]byte
	from   []*peer
}

// next is the first generation with the claimed number that rank was never in.
func (s *Server) next(rank int, claimed uint64) *generation {
	for _, g := range s.gens {
		if g.claimed == claimed && g.members[rank] == nil {
			return g
		}
	}
	return s.open(claimed)
}

// latest is the last generation with the claimed number.
func (s *Server) latest(claimed uint64) *generation {
	for _, g := range slices.Backward(s.gens) {
		if g.claimed == claimed {
			return g
		}
	}
	return s.open(claimed)
}

func (s *Server) open(claimed uint64) *generation {
	g := &generation{
		number:    s.Epoch<<20 + uint64(len(s.gens)) + 1,
		claimed:   claimed,
		members:   map[int]*peer{},
		gone:      map[int]string{},
		exchanges: map[exchangeKey]*exchange{},
	}
	s.gens = append(s.gens, g)
	return g
}

// otherArch describes how the processor of p, which is about to join, differs from the others'; empty if it does not.
func (g *generation) otherArch(p *peer) string {
	if g.first == nil {
		g.first = p
	}
	if p.Arch == g.first.Arch {
		return ""
	}
	return fmt.Sprintf("rank %d on host %s runs on %s, rank %d on host %s on %s: all ranks of a job need the same "+
		"architecture", p.Rank, p.Host, clip(p.Arch, 64), g.first.Rank, g.first.Host, clip(g.first.Arch, 64))
}

// contribute takes p's value. False if p breaks the rules.
func (s *Server) contribute(p *peer, m message) bool {
	if len(m.Name) > maxName || len(m.Value) > MaxValue {
		return false
	}
	g, key := p.gen, exchangeKey{m.Name, m.Use}
	x := g.exchanges[key]
	if x == nil {
		x = &exchange{exchangeKey: key, values: map[int][]byte{}}
		g.exchanges[key] = x
	}
	if _, twice := x.values[p.Rank]; twice {
		return false
	}
	pending := 0
	for _, other := range g.exchanges {
		if _, ok := other.values[p.Rank]; ok {
			pending++
		}
	}
	if pending >= maxPending {
		return false
	}
	x.values[p.Rank] = m.Value
	x.from = append(x.from, p)
	s.endExchanges(g)
	return true
}

// endExchanges ends the exchanges of g that are complete, and those that can never become complete.
func (s *Server) endExchanges(g *generation) {
	for key, x := range g.exchanges {
		if len(x.values) == s.size && g.odd == "" {
			s.complete(x)
		} else if m, hopeless := s.hopeless(g, x); hopeless {
			for _, p := range x.from {
				s.send(p, m)
			}
		} else {
			continue
		}
		delete(g.exchanges, key)
	}
}

// hopeless says why x can never become complete.
func (s *Server) hopeless(g *generation, x *exchange) (message, bool) {
	m := message{Type: typeFailed, Name: x.name, Use: x.use, Text: g.odd}
	if len(s.deaths) > 0 {
		m.Death = &s.deaths[0]
		return m, true
	}
	if m.Text != "" {
		return m, true
	}
	if len(g.gone) == 0 && !s.someEnded {
		return m, false // a shortcut: nearly every call comes here, and there is a call for each rank
	}
	for r := range s.ranks {
		if _, ok := x.values[r]; ok {
			continue
		}
		if m.Text = g.gone[r]; m.Text == "" && (g.members[r] == nil || g.members[r].left) {
			m.Text = s.ranks[r].ended
		}
		if m.Text != "" {
			return m, true
		}
	}
	return m, false
}

// complete sends all values to all ranks, in frames of bounded size, which are encoded once for all ranks. If all
// values are equal, which is common, the frame has one value.
func (s *Server) complete(x *exchange) {
	alike := true
	for _, v := range x.values {
		alike = alike && bytes.Equal(v, x.values[0])
	}
	for first := 0; first < s.size; {
		m := message{Type: typeValues, Name: x.name, Use: x.use, First: first, Alike: alike}
		for room := batchBytes; first < s.size; first++ {
			v := x.values[first]
			if room -= len(v) + 8; room < 0 && len(m.Values) > 0 {
				break
			}
			m.Values = append(m.Values, v)
			if alike {
				first = s.size
				break
			}
		}
		frame, err := encode(m)
		if err != nil {
			panic(err) // batchBytes and maxName are small enough to fit
		}
		for _, p := range x.from {
			s.sendFrame(p, frame)
		}
	}
}

// giveUp tells p, whose time is over, who is missing. It also tells the other ranks that wait, because p will not take
// part in later exchanges.
func (s *Server) giveUp(p *peer, m message) {
	key := exchangeKey{m.Name, m.Use}
	x := p.gen.exchanges[key]
	if x == nil {
		return // p will hear of the exchange's end in a moment
	}
	text := s.missing(p.gen, x)
	for _, other := range x.from {
		if other == p {
			s.send(p, message{Type: typeMissing, Name: x.name, Use: x.use, Text: text})
		} else {
			s.send(other, message{Type: typeFailed, Name: x.name, Use: x.use,
				Text: fmt.Sprintf("rank %d on host %s waited %s for %s", p.Rank, p.Host, clip(m.Text, 32), text)})
		}
	}
	delete(p.gen.exchanges, key)
}

// missing describes an incomplete exchange: which ranks it waits for, what is known of them, and which are there.
func (s *Server) missing(g *generation, x *exchange) string {
	var there, away []int
	for r := range s.ranks {
		if _, ok := x.values[r]; ok {
			there = append(there, r)
		} else {
			away = append(away, r)
		}
	}
	return absence{
		there: there, away: away,
		host:        func(r int) string { return g.members[r].Host },
		stage:       func(r int) string { return s.stage(g, r) },
		whereabouts: func(r int) string { return s.whereabouts(g, r) },
	}.String()
}

// stage is whereabouts without the details that differ from rank to rank.
func (s *Server) stage(g *generation, rank int) string {
	if p := g.members[rank]; p != nil {
		return fmt.Sprintf("on host %s (joined, but not come this far)", p.Host)
	}
	for _, other := range slices.Backward(s.gens) {
		if p := other.members[rank]; p != nil {
			return fmt.Sprintf("on host %s (joined only another initialisation)", p.Host)
		}
	}
	if host := s.ranks[rank].host; host != "" {
		return placed(host)
	}
	return nowhere
}

func (s *Server) whereabouts(g *generation, rank int) string {
	if p := g.members[rank]; p != nil {
		return fmt.Sprintf("joined from host %s, pid %d, but has not come this far", p.Host, p.PID)
	}
	r := s.ranks[rank]
	where := ""
	if r.host != "" {
		where = fmt.Sprintf(", started on host %s, pid %d", r.host, r.pid)
	}
	for _, other := range slices.Backward(s.gens) {
		if p := other.members[rank]; p != nil {
			return fmt.Sprintf("on host %s, pid %d, joined only the earlier or later initialisation %d", p.Host, p.PID,
				other.number)
		}
	}
	return "not heard of" + where
}
