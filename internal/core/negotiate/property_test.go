package negotiate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/property"
)

// A program says what each member submits, in epochs. Each epoch but the last ends by a join of all members. A member
// submits the rounds of a stream one after the other, and takes the streams in any order.
type program struct {
	joinAllOps bool
	streams    []stream
	epochs     [][][]round // by epoch and stream
}

// A stream is a tensor or a group of them that is submitted again and again.
type stream struct {
	kind  operation.Kind
	names []string
}

// A round is what the members submit under a stream's names, and the expected outcome.
type round struct {
	present []bool      // by member; the others have joined
	reqs    [][]Request // by name and member
	want    []string    // by name
}

// choose returns a number in [0, n).
type choose func(n int) int

var kinds = []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Allgather, operation.Broadcast,
	operation.Barrier, operation.Adasum, operation.Alltoall, operation.Reducescatter, operation.AddProcessSet}

// newProgram draws a program whose names repeat their parameters often enough
// to be cached, change them now and then on all members, and sometimes on one.
func newProgram(members, streams, rounds, epochs int, pick choose) *program {
	d := &drawing{
		program: &program{joinAllOps: pick(2) == 0},
		members: members, rounds: rounds, variants: make([]int, streams), pick: pick,
	}
	d.streams = drawStreams(streams, pick)
	for e := range epochs {
		d.epochs = append(d.epochs, d.epoch(e == epochs-1))
	}
	return d.program
}

func drawStreams(n int, pick choose) (all []stream) {
	var sets bool
	for i := range n {
		s := stream{kinds[pick(len(kinds))], []string{fmt.Sprintf("t%d", i)}}
		if s.kind == operation.AddProcessSet {
			if sets { // process sets change one at a time
				s.kind = operation.Reducescatter
			}
			sets = true
		}
		if !s.kind.ChangesSets() && s.kind != operation.Barrier && pick(3) == 0 {
			for j := range 1 + pick(3) {
				s.names = append(s.names, fmt.Sprintf("t%d.%d", i, j))
			}
		}
		all = append(all, s)
	}
	return all
}

// A drawing is a program in the making.
type drawing struct {
	*program
	members, rounds int
	variants        []int // of the parameters, by stream
	ids             modelIDs
	pick            choose
}

// epoch draws the rounds of each stream. Members of a lower level have fewer rounds of every stream, because otherwise
// they could wait for one another. Only the last round that a member submits can be one more than that, because the
// member need not wait for it before it joins.
func (d *drawing) epoch(last bool) (all [][]round) {
	levels := make([]int, d.members)
	for m := range levels {
		levels[m] = d.pick(3)
	}
	for i, s := range d.streams {
		n := 1 + d.pick(d.rounds)
		byLevel := []int{d.pick(n + 1), d.pick(n + 1), n}
		slices.Sort(byLevel)
		counts := make([]int, d.members) // how many rounds each has before it joins
		for m := range counts {
			counts[m] = n
			if !last && !s.kind.ChangesSets() {
				counts[m] = byLevel[levels[m]] + d.pick(2)
			}
		}
		var rounds []round
		for k := range slices.Max(counts) {
			rounds = append(rounds, d.round(i, k, counts))
		}
		all = append(all, rounds)
	}
	return all
}

// round draws round k of stream i, in which those members take part that have more rounds than k.
func (d *drawing) round(i, k int, counts []int) round {
	if d.pick(5) == 0 {
		d.variants[i] = d.pick(3)
	}
	r := round{present: make([]bool, d.members)}
	for m := range r.present {
		r.present[m] = counts[m] > k
	}
	odd := -1 // the member that submits something else under the last name
	if d.members > 1 && d.pick(6) == 0 {
		odd = d.pick(d.members)
	}
	names := d.streams[i].names
	for j := range names {
		if j < len(names)-1 {
			r.reqs = append(r.reqs, d.requests(i, j, -1))
		} else {
			r.reqs = append(r.reqs, d.requests(i, j, odd))
		}
		r.want = append(r.want, d.expect(r.reqs[j], r.present, &d.ids))
	}
	return r
}

// requests makes the members' Requests for name j of stream i, which differ for the odd member.
func (d *drawing) requests(i, j, odd int) []Request {
	s := d.streams[i]
	kind, id := s.kind, int32(0)
	if kind.ChangesSets() {
		kind, id = d.ids.draw(d.pick)
	}
	reqs := make([]Request, d.members)
	for m := range reqs {
		variant := d.variants[i]
		if m == odd {
			variant++
		}
		reqs[m] = variantOf(kind, variant, m, id)
		reqs[m].Name = s.names[j]
		if len(s.names) > 1 {
			reqs[m].Group, reqs[m].GroupSize = s.names[0], int32(len(s.names))
		}
	}
	return reqs
}

func variantOf(kind operation.Kind, variant, member int, id int32) Request {
	r := Request{Type: kind, DType: tensor.Float32, ReduceOp: tensor.Sum, Device: CPUDevice, Prescale: 1, Postscale: 1}
	switch kind {
	case operation.Allreduce, operation.Adasum, operation.Reducescatter:
		r.Shape = tensor.Shape{4, int64(variant)}
	case operation.Allgather: // only the first dimension varies, so variants agree
		r.Shape = tensor.Shape{int64(variant + member%3), 2}
	case operation.Alltoall:
		r.Shape = tensor.Shape{int64(member % 3), int64(variant)}
	case operation.Broadcast:
		r.Shape = tensor.Shape{3}
		r.Root = int32(variant % 2)
	case operation.AddProcessSet:
		r.Ranks = [][]int32{{0}, {1}, {0, 1}, {0}}[variant]
	case operation.RemoveProcessSet:
		r.Root = id + int32(variant)
	}
	return r
}

// modelIDs gives process sets their ids, from a list of the ids in use. It finds the id that was freed first by its
// time.
type modelIDs struct {
	freedAt []int // by id - 1; 0 if taken
	clock   int
}

// draw chooses between a new set and the removal of an old one.
func (ids *modelIDs) draw(pick choose) (operation.Kind, int32) {
	if pick(2) == 0 {
		return operation.AddProcessSet, 0
	}
	return operation.RemoveProcessSet, int32(pick(len(ids.freedAt) + 1))
}

func (ids *modelIDs) add() int {
	best := -1
	for i, at := range ids.freedAt {
		if at > 0 && (best < 0 || at < ids.freedAt[best]) {
			best = i
		}
	}
	if best < 0 {
		best = len(ids.freedAt)
		ids.freedAt = append(ids.freedAt, 0)
	}
	ids.freedAt[best] = 0
	return best + 1
}

func (ids *modelIDs) remove(id int) bool {
	if id < 1 || id > len(ids.freedAt) || ids.freedAt[id-1] > 0 {
		return false
	}
	ids.clock++
	ids.freedAt[id-1] = ids.clock
	return true
}

// expect is the sequential model: the outcome of a round if nothing else happens. Empty: an error.
func (p *program) expect(reqs []Request, present []bool, ids *modelIDs) string {
	var dims []int64
	var absent []int32
	var first *Request
	for m := range reqs {
		r := &reqs[m]
		if !present[m] {
			absent = append(absent, int32(m))
			dims = append(dims, 0)
			continue
		}
		if first == nil {
			first = r
		}
		var same bool
		switch r.Type {
		case operation.Alltoall:
			same = r.Shape[1] == first.Shape[1]
		case operation.Allgather:
			dims = append(dims, r.Shape[0])
			same = true
		default:
			same = r.Shape.Equal(first.Shape) && r.Root == first.Root && slices.Equal(r.Ranks, first.Ranks)
		}
		if !same {
			return ""
		}
	}
	want := *first
	if len(absent) > 0 {
		switch want.Type {
		case operation.Allgather, operation.Alltoall, operation.Reducescatter, operation.Broadcast:
			if !p.joinAllOps || want.Type == operation.Broadcast && !present[want.Root] {
				return ""
			}
		}
	}
	want.Shape = slices.Clone(want.Shape)
	switch want.Type {
	case operation.Allgather:
		want.Shape[0] = 0
		for _, n := range dims {
			want.Shape[0] += n
		}
		return fmt.Sprint(want.Type, want.Name, want.Shape, want.Root, dims, absent, want.Group)
	case operation.Alltoall:
		want.Shape[0] = 0
	case operation.AddProcessSet:
		want.Root = int32(ids.add())
	case operation.RemoveProcessSet:
		if !ids.remove(int(want.Root)) {
			return ""
		}
	}
	return fmt.Sprint(want.Type, want.Name, want.Shape, want.Root, []int64(nil), absent, want.Group)
}

func got(r *Response) string {
	if r.Err != "" {
		return ""
	}
	return fmt.Sprint(r.Type, r.Name, r.Shape, r.Root, r.FirstDims, r.Joined, r.Group)
}

// player is a program under way on a lane.
type player struct {
	*modelLane
	*program
	at      []progress
	said    []string // the result of got for each record, from the first member that read it
	ahead   ahead
	pick    choose
	results int // that members have read
}

// ahead says how many of the allreduces have data that travels with their marks.
type ahead int

const (
	none ahead = iota
	some
	allOfThem
)

// data is what member m contributes to the next round of stream i, if that travels with its mark; else nil.
func (pl *player) data(m, i int) *int {
	if s := &pl.streams[i]; pl.ahead == none || s.kind != operation.Allreduce || len(s.names) > 1 ||
		pl.ahead == some && pl.pick(3) == 0 {
		return nil
	}
	n := contribution(m, i, pl.at[m].epoch, pl.at[m].submitted[i])
	return &n
}

// contribution is a number of its own for each member, stream, epoch and round.
func contribution(m, i, epoch, round int) int { return ((m*10+i)*10+epoch)*1000 + round }

// checkResult checks the result in the record that member m has just read, of a round of stream i.
func (pl *player) checkResult(m, i, epoch, round int) error {
	rec := pl.board.log[pl.members[m].read-1]
	if rec.result == nil {
		if s := &pl.streams[i]; pl.ahead == allOfThem && rec.response == nil && s.kind == operation.Allreduce &&
			len(s.names) == 1 {
			return fmt.Errorf("member %d: round %d of %v has no result, though all data travels", m, round, s.names)
		}
		return nil
	}
	want := 0
	for member := range pl.members {
		want += contribution(member, i, epoch, round)
	}
	if pl.results++; *rec.result != want {
		return fmt.Errorf("member %d: round %d of %v: result %d, want %d", m, round, pl.streams[i].names, *rec.result,
			want)
	}
	return nil
}

// progress says how far a member has come.
type progress struct {
	epoch     int
	submitted []int   // rounds, by stream
	done      [][]int // rounds, by stream and name
}

// An action is a thing that can happen: what, to whom.
type action struct {
	what   byte
	member int
	stream int
}

// play runs p on l in an order drawn by pick, until nothing can move, and returns how many times a card was used, and
// how many records with results members have read.
func play(l *modelLane, p *program, pick choose, a ahead) (byCard, results int, err error) {
	pl := &player{modelLane: l, program: p, at: make([]progress, len(l.members)), ahead: a, pick: pick}
	for m := range pl.at {
		pl.at[m].enter(p, 0)
	}
	var can []action
	for step := 0; ; step++ {
		if can = pl.possible(can[:0]); len(can) == 0 {
			break
		}
		a := can[pick(len(can))]
		// In a large lane one choice moves a run of members, because listing all possible actions for each move would
		// take too long.
		for i, b := range can {
			if b != a && !(len(l.members) > 16 && b.what == a.what && b.stream == a.stream && (i+step)%3 == 0) {
				continue
			}
			if err := pl.act(b); err != nil {
				return 0, 0, err
			}
		}
	}
	if left := l.leftover(); left != "" {
		return 0, 0, fmt.Errorf("left over: %s", left)
	}
	for m := range pl.at {
		if at := &pl.at[m]; at.epoch != len(p.epochs)-1 || !pl.through(m) {
			return 0, 0, fmt.Errorf("member %d has stopped at %+v", m, at)
		}
	}
	for _, h := range l.members[0].history {
		if strings.HasPrefix(h, "card") {
			byCard++
		}
	}
	return byCard, pl.results, nil
}

// enter starts an epoch.
func (at *progress) enter(p *program, epoch int) {
	*at = progress{epoch: epoch, submitted: make([]int, len(p.streams))}
	for _, s := range p.streams {
		at.done = append(at.done, make([]int, len(s.names)))
	}
}

// ready reports whether member m has a round of stream i to submit.
func (pl *player) ready(m, i int) bool {
	at := &pl.at[m]
	k := at.submitted[i]
	return !pl.over(m, i) && slices.Min(at.done[i]) == k
}

// over reports whether member m has submitted its last round of stream i.
func (pl *player) over(m, i int) bool {
	rounds := pl.epochs[pl.at[m].epoch][i]
	k := pl.at[m].submitted[i]
	return k == len(rounds) || !rounds[k].present[m]
}

// through reports whether member m has seen the end of all rounds of its epoch.
func (pl *player) through(m int) bool {
	for i, rounds := range pl.epochs[pl.at[m].epoch] {
		for _, k := range pl.at[m].done[i] {
			if k != len(rounds) {
				return false
			}
		}
	}
	return true
}

func (pl *player) possible(can []action) []action {
	for m, mem := range pl.members {
		if mem.join == apart {
			all := true
			for i := range pl.streams {
				if pl.ready(m, i) {
					can = append(can, action{'s', m, i})
				}
				all = all && pl.over(m, i)
			}
			if all && pl.at[m].epoch < len(pl.epochs)-1 {
				can = append(can, action{'j', m, 0})
			}
		}
		if pl.board.canTake(m) {
			can = append(can, action{'c', m, 0})
		}
		if len(pl.board.marks[m]) > 0 {
			can = append(can, action{'a', m, 0})
		}
		if len(pl.board.stale[m]) > 0 {
			can = append(can, action{'n', m, 0})
		}
		if pl.board.readable(m, mem.read) {
			can = append(can, action{'r', m, 0})
		}
	}
	if len(pl.outbox) > 0 {
		can = append(can, action{'p', 0, 0})
	}
	return can
}

func (pl *player) act(a action) error {
	switch a.what {
	case 's':
		pl.submitRound(a.member, a.stream)
	case 'j':
		pl.submitJoin(a.member)
	case 'c':
		resps, err := pl.coordinate(a.member)
		if err != nil {
			return err
		}
		return whole(resps)
	case 'p':
		pl.publish()
	case 'a':
		pl.board.arrive(a.member)
	case 'n':
		pl.notice(a.member)
	case 'r':
		resp, err := pl.next(a.member)
		if err != nil {
			return err
		}
		return pl.check(a.member, resp)
	}
	return nil
}

// whole checks that the Responses of one Step contain groups whole or not at all.
func whole(resps []*Response) error {
	n := make(map[string]int)
	for _, r := range resps {
		if r.Group != "" {
			n[r.Group]++
		}
	}
	for _, r := range resps {
		if r.Group != "" && n[r.Group] != int(r.GroupSize) {
			return fmt.Errorf("%d of group %s are ready without the others", n[r.Group], r.Group)
		}
	}
	return nil
}

func (pl *player) submitRound(m, i int) {
	at := &pl.at[m]
	var reqs []*Request
	for j := range pl.streams[i].names {
		reqs = append(reqs, &pl.epochs[at.epoch][i][at.submitted[i]].reqs[j][m])
	}
	data := pl.data(m, i)
	at.submitted[i]++
	pl.submit(m, data, reqs...)
}

// check compares what member m has read with the model.
func (pl *player) check(m int, resp *Response) error {
	at := &pl.at[m]
	switch resp.Type {
	case operation.Settle:
		return nil
	case operation.Join:
		if !pl.through(m) {
			return fmt.Errorf("member %d has joined too early: %+v", m, at)
		}
		at.enter(pl.program, at.epoch+1)
		return nil
	}
	for i, s := range pl.streams {
		j := slices.Index(s.names, resp.Name)
		if j < 0 {
			continue
		}
		rounds := pl.epochs[at.epoch][i]
		k := at.done[i][j]
		if k == len(rounds) {
			return fmt.Errorf("member %d: %s: round %d of %d", m, resp.Name, k, len(rounds))
		}
		at.done[i][j]++
		if err := pl.checkResult(m, i, at.epoch, k); err != nil {
			return err
		}
		if want, got := rounds[k].want[j], pl.got(m, resp); got != want {
			return fmt.Errorf("member %d, %s, epoch %d, round %d: got %q (%s), want %q", m, resp.Name, at.epoch, k, got,
				resp.Err, want)
		}
		return nil
	}
	return fmt.Errorf("member %d: nobody has asked for %+v", m, resp)
}

// got describes the record that member m has just read. The members' histories show whether all have read the same.
func (pl *player) got(m int, resp *Response) string {
	n := pl.members[m].read - 1
	for len(pl.said) <= n {
		pl.said = append(pl.said, "?")
	}
	if pl.said[n] == "?" {
		pl.said[n] = got(resp)
	}
	return pl.said[n]
}

func ranks(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// TestRandomPrograms finds no order of events in which members disagree, a result differs from the sequential model, or
// something waits for ever.
func TestRandomPrograms(t *testing.T) {
	var cards, results int
	property.Check(t, func(t *property.T) {
		// Choices that are drawn one by one can be made small, and often are. Choices that come from a seed are even.
		pick := func(n int) int { return t.Int("pick", 0, n-1) }
		if t.Bool("even") {
			pick = rand.New(rand.NewPCG(t.Uint64("seed"), 0)).IntN
		}
		members := t.Int("members", 2, 16)
		capacity := t.Int("capacity", 0, 6)
		remote := t.Bool("remote")
		p := newProgram(members, 1+pick(5), 10, 1+pick(3), pick)
		l := newModelLane(ranks(members), remote, Options{Capacity: capacity, JoinAllOps: p.joinAllOps,
			FusionThreshold: 64})
		n, r, err := play(l, p, pick, property.Pick(t, "ahead", []ahead{none, some, allOfThem}))
		if err != nil {
			t.Fatal(err)
		}
		cards, results = cards+n, results+r
	})
	if cards == 0 || results == 0 {
		t.Errorf("%d cards and %d results were used: the programs do not test what they should", cards, results)
	}
}

// TestRandomProgramsManyMembers does the same on 500 members, drawing only the seed. A lane of this size is slow, so
// only one seed in sixteen is played.
func TestRandomProgramsManyMembers(t *testing.T) {
	const members = 500
	property.Check(t, func(t *property.T) {
		rng := rand.New(rand.NewPCG(t.Uint64("seed"), 0))
		if rng.IntN(16) != 0 {
			return
		}
		capacity, remote := rng.IntN(5), rng.IntN(2) == 0
		p := newProgram(members, 2, 4, 1+rng.IntN(2), rng.IntN)
		l := newModelLane(ranks(members), remote, Options{Capacity: capacity, JoinAllOps: p.joinAllOps,
			FusionThreshold: 64})
		if _, _, err := play(l, p, rng.IntN, ahead(rng.IntN(3))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFuseProperties: every Response is in exactly one Batch. Batches stand in the order of their first Responses, keep
// log order inside, and hold only Responses of one kind within the threshold. Two consecutive Batches of a kind would
// never have fitted into one.
func TestFuseProperties(t *testing.T) {
	property.Check(t, func(t *property.T) {
		var rs []*Response
		var results [][]byte
		at := make(map[*Response]int)
		for range t.Int("n", 0, 60) {
			r := &Response{
				Type: property.Pick(t, "type", []operation.Kind{operation.Allreduce, operation.Allreduce,
					operation.Allreduce, operation.Adasum, operation.Broadcast, operation.Barrier, operation.Allgather,
					operation.Reducescatter}),
				DType:    property.Pick(t, "dtype", []tensor.DType{tensor.Float32, tensor.Float64}),
				ReduceOp: property.Pick(t, "op", []tensor.ReduceOp{tensor.Sum, tensor.Max}),
				Device:   CPUDevice + int32(t.Int("device", 0, 1)),
				Shape:    tensor.Shape{int64(t.Int("size", 0, 20))},
				Prescale: float64(t.Int("prescale", 1, 2)),
			}
			if t.Int("grouped", 0, 3) == 0 {
				r.Group = property.Pick(t, "group", []string{"g", "h"})
			}
			if t.Int("err", 0, 9) == 0 {
				r.Err = "mismatch"
			}
			at[r] = len(rs)
			rs = append(rs, r)
			results = append(results, nil)
			if r.Type == operation.Allreduce && r.Err == "" && t.Int("result", 0, 4) == 0 {
				results[len(rs)-1] = []byte{byte(len(rs))}
			}
		}
		threshold := int64(t.Int("threshold", 0, 200))
		o := FuseOptions{Groups: t.Bool("groups")}
		if t.Bool("results") {
			o.Results = results
		}
		plan := Fuse(nil, rs, threshold, o)
		// memory of another plan
		again := Fuse(Fuse(nil, rs, 1<<30, FuseOptions{})[:0], rs, threshold, o)
		if fmt.Sprint(plan) != fmt.Sprint(again) {
			t.Fatalf("the plan depends on dst's memory:\n%v\n%v", plan, again)
		}
		seen := 0
		for i, b := range plan {
			if i > 0 && at[plan[i-1].Responses[0]] >= at[b.Responses[0]] {
				t.Fatalf("batch %d stands before batch %d", i, i-1)
			}
			var bytes int64
			if first := at[b.Responses[0]]; o.Results != nil && (string(b.Result) != string(results[first]) ||
				b.Result != nil && len(b.Responses) > 1) {
				t.Fatalf("batch %d of %d has the result %v, not %v", i, len(b.Responses), b.Result, results[first])
			}
			for j, r := range b.Responses {
				if j > 0 && o.Results != nil && results[at[r]] != nil {
					t.Fatalf("batch %d has %+v in company, though its result is there", i, r)
				}
				seen++
				bytes += r.Shape[0] * int64(r.DType.Size())
				if j > 0 && at[b.Responses[j-1]] >= at[r] {
					t.Fatalf("batch %d is not in log order", i)
				}
				if len(b.Responses) > 1 && (r.Err != "" || !r.Type.Describe().Fuses) {
					t.Fatalf("batch %d has %+v in company", i, r)
				}
				if r.Type != b.Type || r.DType != b.DType || r.ReduceOp != b.ReduceOp || r.Prescale != b.Prescale ||
					r.Device != b.Responses[0].Device || o.Groups && r.Group != b.Responses[0].Group {
					t.Fatalf("batch %d: %+v does not belong to it", i, r)
				}
			}
			if b.Bytes != bytes || len(b.Responses) > 1 && bytes > threshold {
				t.Fatalf("batch %d: %d bytes, says %d, threshold %d", i, bytes, b.Bytes, threshold)
			}
		}
		if seen != len(rs) {
			t.Fatalf("%d responses are in the plan, of %d", seen, len(rs))
		}
	})
}
