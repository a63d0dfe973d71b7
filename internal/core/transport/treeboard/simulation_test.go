package treeboard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/test/property"
)

const joinName = "join.noname"

// worker is a member that behaves as in the engine: it executes every name `rounds` times, the names of a group
// together, and then joins.
type worker struct {
	s      *simulation
	member int
	board  Board
	cache  *negotiate.Worker
	log    []string // the batches that it has seen, as text
	asked  map[string]*ask
	done   map[string]int
	toPost [][]byte
	joined bool // it has asked to join
}

// ask is a name under way.
type ask struct {
	r         negotiate.Request
	card, gen uint32
}

// request is a member's Request for a name in its round. The shape changes now and then, for all members at the same
// time or for one alone.
func (w *worker) request(name string) negotiate.Request {
	r := negotiate.Request{Name: name, DType: tensor.Float32, ReduceOp: tensor.Sum,
		Shape: tensor.Shape{1 + int64(w.done[name]/3)}, Device: negotiate.CPUDevice,
		Prescale: 1, Postscale: 1}
	if i := slices.Index(w.s.odd, name); i >= 0 {
		r.Device = -1
		if w.done[name]%4 == 2 && w.member == w.s.oddMember {
			r.Shape = tensor.Shape{77}
		}
	}
	for g, names := range w.s.groups {
		if slices.Contains(names, name) && len(names) > 1 {
			r.Group, r.GroupSize = fmt.Sprintf("g%d", g), int32(len(names))
		}
	}
	return r
}

// submit asks for all names of a group.
func (w *worker) submit(names []string) {
	asks := make([]*ask, len(names))
	var rs []*negotiate.Request
	for i, n := range names {
		asks[i] = &ask{r: w.request(n), card: negotiate.NoCard}
		w.asked[n] = asks[i]
		rs = append(rs, &asks[i].r)
	}
	if cards, cached := w.cache.LookupGroup(nil, rs); cached {
		var marks []transport.Mark
		for i, s := range cards {
			asks[i].card, asks[i].gen = s.Card, s.Gen
			marks = append(marks, transport.Mark{Card: s.Card, Gen: s.Gen})
		}
		if w.mark(names, marks) {
			return
		}
	}
	for _, a := range asks {
		w.post(a)
	}
}

// mark marks the cards of a group. The data of a single tensor may travel with the mark.
func (w *worker) mark(names []string, marks []transport.Mark) bool {
	if len(marks) > 1 {
		return w.board.MarkGroup(marks)
	}
	mark := marks[0]
	if w.s.sendsAhead() {
		return w.board.MarkWith(mark.Card, mark.Gen, w.s.operand(names[0], w.done[names[0]], w.member))
	}
	return w.board.Mark(mark.Card, mark.Gen)
}

func (w *worker) post(a *ask) {
	a.card = negotiate.NoCard
	w.toPost = append(w.toPost, a.r.Append(nil))
	w.flush()
}

func (w *worker) flush() {
	for len(w.toPost) > 0 && w.board.Post(w.toPost[0]) {
		w.toPost = w.toPost[1:]
	}
}

// stale posts the Request whose mark was stale, and all of its group that are still marked.
func (w *worker) stale(card, gen uint32) {
	for _, names := range w.s.groups {
		for _, n := range names {
			if a := w.asked[n]; a != nil && a.card == card && a.gen == gen {
				for _, n := range names {
					if a := w.asked[n]; a != nil && a.card != negotiate.NoCard {
						w.post(a)
					}
				}
				return
			}
		}
	}
}

func (w *worker) drive() {
	turn(w.board)
	w.board.TakeStale(w.stale)
	w.flush()
	records := nextBatch(w.board)
	if records == nil {
		return
	}
	batch := ""
	executed := map[string]int{}
	for _, rec := range records {
		var resp *negotiate.Response
		switch rec.Kind {
		case transport.RecordCard, transport.RecordResult:
			var err error
			if resp, err = w.cache.Card(rec.Card); err != nil {
				w.s.fatalf("member %d: %v", w.member, err)
			}
			batch += fmt.Sprintf("card %d;", rec.Card)
			if rec.Kind == transport.RecordResult {
				w.checkResult(resp, rec.Payload)
				batch += fmt.Sprintf("%x;", rec.Payload)
			}
		case transport.RecordResponse:
			resp = new(negotiate.Response)
			if err := resp.Decode(rec.Payload); err != nil {
				w.s.fatalf("member %d: %v", w.member, err)
			}
			w.cache.Apply(resp)
			batch += fmt.Sprintf("%v %s %v card %d %d;", resp.Type, resp.Name, resp.Err != "", resp.Card, resp.Gen)
		default:
			w.s.fatalf("member %d: record of kind %d", w.member, rec.Kind)
		}
		w.execute(resp)
		executed[resp.Group]++
	}
	for g, names := range w.s.groups {
		if n := executed[fmt.Sprintf("g%d", g)]; n != 0 && n != len(names) {
			w.s.fatalf("member %d: %d of the %d tensors of a group are in one batch: %s", w.member, n,
				len(names), batch)
		}
	}
	w.log = append(w.log, batch)
}

func (w *worker) execute(resp *negotiate.Response) {
	switch resp.Type {
	case operation.Settle:
		if int(resp.Root) == w.member {
			w.board.TakeStale(w.stale)
			w.toPost = append(w.toPost, (&negotiate.Request{Type: operation.Join, Name: joinName}).Append(nil))
			w.flush()
		}
		return
	case operation.Join:
		if !w.joined {
			w.s.fatalf("member %d: all have joined, but it has not", w.member)
		}
		w.joined = false
		w.done[joinName]++
		return
	}
	if w.asked[resp.Name] == nil && !w.joined {
		w.s.fatalf("member %d: %q is executed, but was not submitted", w.member, resp.Name)
	}
	delete(w.asked, resp.Name)
	w.done[resp.Name]++ // also without a Request of its own, so that all agree after a Join
}

// settle begins a Join.
func (w *worker) settle() {
	w.joined = true
	w.toPost = append(w.toPost, (&negotiate.Request{Type: operation.Settle, Name: fmt.Sprintf("%s.settle.%d", joinName,
		w.member)}).Append(nil))
	w.flush()
}

type simulation struct {
	t         *property.T
	link      *link
	groups    [][]string
	odd       []string // names for which one member sometimes asks for another shape
	oddMember int
	rounds    int
	workers   []*worker
	coord     *negotiate.Coordinator
	outbox    [][]byte
	ahead     int // how often data travels with a mark: never, seldom, mostly, always
	pick      func(n int) int
	results   int // that have been checked
}

// sendsAhead draws whether a member's data travels with its mark.
func (s *simulation) sendsAhead() bool {
	return s.ahead == 3 || s.ahead > 0 && s.pick(8) < 1+3*(s.ahead-1)*2
}

// operand is what a member contributes to a round of a name, other numbers each time.
func (s *simulation) operand(name string, round, member int) *transport.Operand {
	h := fnv.New64a()
	fmt.Fprint(h, name, " ", round, " ", member)
	rnd := rand.New(rand.NewPCG(h.Sum64(), 0))
	o := &transport.Operand{DType: tensor.Float32, Reduce: tensor.Sum, Scale: 0.25}
	for range 1 + round/3 {
		x := float32(rnd.NormFloat64()) * float32(int(1)<<rnd.IntN(30)) // sums depend on their order
		o.Data = binary.NativeEndian.AppendUint32(o.Data, math.Float32bits(x))
	}
	return o
}

// checkResult compares a result with sums in the order that transport.EarlyBoard promises.
func (w *worker) checkResult(resp *negotiate.Response, result []byte) {
	round := w.done[resp.Name]
	number := func(p []byte, i int) float32 { return math.Float32frombits(binary.NativeEndian.Uint32(p[4*i:])) }
	var want []byte
	for i := range 1 + round/3 {
		var sum float32
		for h, members := range w.s.link.hosts {
			var ofHost float32
			for j, m := range members {
				if x := number(w.s.operand(resp.Name, round, m).Data, i); j == 0 {
					ofHost = x
				} else {
					ofHost += x
				}
			}
			if h == 0 {
				sum = ofHost
			} else {
				sum += ofHost
			}
		}
		want = binary.NativeEndian.AppendUint32(want, math.Float32bits(sum*0.25))
	}
	if !bytes.Equal(result, want) {
		w.s.fatalf("member %d, %q, round %d on hosts %v: result %x, want %x", w.member, resp.Name, round,
			w.s.link.hosts, result, want)
	}
	w.s.results++
}

func (s *simulation) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf(format, args...)
}

// coordinate takes Requests and publishes Responses.
func (s *simulation) coordinate() {
	s.publish()
	s.link.boards[0].Coordination().TakeRequests(func(from []int, p []byte) {
		var r negotiate.Request
		if err := r.Decode(p); err != nil {
			s.fatalf("%v", err)
		}
		resps, err := s.coord.Step(from, &r)
		if err != nil {
			s.fatalf("members %v: %v", from, err)
		}
		for _, resp := range resps {
			s.outbox = append(s.outbox, resp.Append(nil))
		}
		s.publish()
	})
}

func (s *simulation) publish() {
	for len(s.outbox) > 0 && s.link.boards[0].Coordination().Publish(s.outbox[0]) > 0 {
		s.outbox = s.outbox[1:]
	}
}

// ready lists the groups that a worker may submit now.
func (s *simulation) ready(w *worker) [][]string {
	if w.joined {
		return nil
	}
	var ready [][]string
	for _, names := range s.groups {
		free := true
		for _, n := range names {
			free = free && w.asked[n] == nil && w.done[n] < s.rounds
		}
		if free {
			ready = append(ready, names)
		}
	}
	return ready
}

// finished reports whether every name has been executed as often as planned.
func (s *simulation) finished() bool {
	for _, w := range s.workers {
		if len(w.asked) > 0 || w.joined {
			return false
		}
		for _, names := range s.groups {
			for _, n := range names {
				if w.done[n] < s.rounds {
					return false
				}
			}
		}
	}
	return true
}

// drawHosts puts up to 24 members on hosts.
func drawHosts(t *property.T) [][]int {
	n := t.Int("hosts", 1, 4)
	if t.Int("deep", 0, 3) == 0 {
		n = t.Int("many hosts", Arity+1, 2*Arity+4)
	}
	hosts := make([][]int, n)
	m := 0
	for h := range hosts {
		hosts[h] = append(hosts[h], m)
		m++
	}
	for range t.Int("more members", 0, 6) {
		h := t.Int("host", 0, n-1)
		hosts[h] = append(hosts[h], m)
		m++
	}
	return hosts
}

// TestSimulation runs random interleavings of members, deliveries and the coordinator, with fewer cards than names,
// with groups, with members that ask for something else than the others, and with Joins. All members see the same
// batches, and execute all their submissions once, groups as a whole. Nothing gets stuck.
func TestSimulation(t *testing.T) {
	for _, combine := range []bool{false, true} {
		t.Run(fmt.Sprint("combine ", combine), func(t *testing.T) {
			property.Check(t, func(rt *property.T) { simulate(t, rt, combine) })
		})
	}
}

func simulate(t *testing.T, rt *property.T, combine bool) {
	s := &simulation{t: rt, rounds: rt.Int("rounds", 1, 12)}
	hosts := drawHosts(rt)
	cards := rt.Int("cards", 1, 8)
	var merge func([]int) transport.Combiner
	if combine {
		merge = func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }
	}
	s.link = newLink(t, hosts, cards, merge)
	n := len(s.link.boards)
	members := make([]int, n)
	for m := range members {
		members[m] = m
	}
	s.coord = negotiate.NewCoordinator(members, s.link.boards[0].Coordination(), negotiate.Options{Capacity: cards})
	for g := range rt.Int("groups", 1, 5) {
		var names []string
		for i := range rt.Int("names", 1, 3) {
			names = append(names, fmt.Sprintf("t%d.%d", g, i))
		}
		s.groups = append(s.groups, names)
		if rt.Bool("odd") {
			s.odd = append(s.odd, names[0])
		}
	}
	s.oddMember = rt.Int("odd member", 0, n-1)
	for m := range n {
		s.workers = append(s.workers, &worker{s: s, member: m, board: s.link.boards[m], cache: negotiate.NewWorker(m),
			asked: map[string]*ask{}, done: map[string]int{}})
	}
	rnd := rand.New(rand.NewPCG(rt.Uint64("order"), 0)) // a draw for each step would be slow
	pick := rnd.IntN
	s.pick, s.ahead = pick, rt.Int("ahead", 0, 3)
	joins := rt.Int("joins", 0, 2) // a rank joins at any time, while others go on
	pairs := s.link.pairs()
	steps := 0
	for ; !s.finished(); steps++ {
		if steps > 100_000 {
			s.stuck()
		}
		w := s.workers[pick(n)]
		switch pick(8) {
		case 0, 1:
			if ready := s.ready(w); len(ready) > 0 {
				w.submit(ready[pick(len(ready))])
			} else if !w.joined && len(w.asked) == 0 && s.isAwaited(w) {
				w.settle()
			}
		case 2, 3:
			w.drive()
		case 4:
			s.coordinate()
		case 5, 6:
			if len(pairs) > 0 {
				p := pairs[pick(len(pairs))]
				s.link.deliver(p[0], p[1], 1+pick(3))
			}
		case 7:
			if pick(20*n) == 0 && !w.joined && w.done[joinName] < joins {
				w.settle()
			}
		}
	}
	s.close(pick(n))
}

// isAwaited reports whether some member has joined and waits for w to join.
func (s *simulation) isAwaited(w *worker) bool {
	return slices.ContainsFunc(s.workers,
		func(o *worker) bool { return o.joined && o.done[joinName] == w.done[joinName] })
}

// stuck lists the members and what they wait for.
func (s *simulation) stuck() {
	for _, w := range s.workers {
		for n, a := range w.asked {
			s.t.Logf("member %d waits for %s (card %d gen %d), round %d", w.member, n, int32(a.card), a.gen, w.done[n])
		}
		if w.joined {
			s.t.Logf("member %d waits for the others to join", w.member)
		}
	}
	s.fatalf("hosts %v: stuck", s.link.hosts)
}

// close ends the lane, and compares the members' logs.
func (s *simulation) close(by int) {
	s.link.boards[by].Close()
	for range 4 {
		s.link.poll()
		for _, w := range s.workers {
			w.drive()
			w.board.Closed()
		}
	}
	want := fmt.Sprint(s.workers[0].log)
	for _, w := range s.workers {
		if got := fmt.Sprint(w.log); got != want {
			s.fatalf("hosts %v: member %d saw %s, member 0 %s", s.link.hosts, w.member, got, want)
		}
		if !w.board.Closed() || w.board.ClosedBy() != by {
			s.fatalf("hosts %v: member %d: closed %v by %d, want by %d", s.link.hosts, w.member, w.board.Closed(),
				w.board.ClosedBy(), by)
		}
	}
}
