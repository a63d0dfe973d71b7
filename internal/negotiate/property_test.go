package negotiate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gorovod/gorovod/internal/tensor"
)

// A program says what each member submits: for each name a sequence of rounds,
// which a member submits one after the other, and names in any order.
type program struct {
	names  []string
	rounds [][][]Request // by name, round and member
}

// choose returns a number in [0, n).
type choose func(n int) int

// newProgram draws a program whose names repeat their parameters often enough
// to be cached, change them now and then on all members, and sometimes on one.
func newProgram(members, names, rounds int, pick choose) *program {
	p := &program{}
	for i := range names {
		p.names = append(p.names, fmt.Sprintf("t%d", i))
		kind := []RequestType{Allreduce, Allreduce, Allgather, Broadcast, Barrier}[pick(5)]
		variant := 0
		var all [][]Request
		for range 1 + pick(rounds) {
			if pick(5) == 0 {
				variant = pick(3)
			}
			reqs := make([]Request, members)
			for m := range reqs {
				reqs[m] = variantOf(kind, variant, m)
				reqs[m].Name = p.names[i]
			}
			if members > 1 && pick(6) == 0 {
				m := pick(members)
				reqs[m] = variantOf(kind, variant+1, m)
				reqs[m].Name = p.names[i]
			}
			all = append(all, reqs)
		}
		p.rounds = append(p.rounds, all)
	}
	return p
}

func variantOf(kind RequestType, variant, member int) Request {
	r := Request{Type: kind, DType: tensor.Float32, ReduceOp: tensor.Sum, Device: CPUDevice, Prescale: 1, Postscale: 1}
	switch kind {
	case Allreduce:
		r.Shape = tensor.Shape{4, int64(variant)}
	case Allgather: // only the first dimension varies: variants agree
		r.Shape = tensor.Shape{int64(variant + member%3), 2}
	case Broadcast:
		r.Shape = tensor.Shape{3}
		r.Root = int32(variant % 2)
	}
	return r
}

// expect is the sequential model: what a round gives if nothing else goes on.
// Empty: a mismatch.
func expect(reqs []Request) string {
	var first []int64
	for _, r := range reqs {
		switch r.Type {
		case Allgather:
			first = append(first, r.Shape[0])
		case Allreduce:
			if r.Shape[1] != reqs[0].Shape[1] {
				return ""
			}
		case Broadcast:
			if r.Root != reqs[0].Root {
				return ""
			}
		}
	}
	r := reqs[0]
	if r.Type == Allgather {
		r.Shape = slices.Clone(r.Shape)
		r.Shape[0] = 0
		for _, n := range first {
			r.Shape[0] += n
		}
	}
	return fmt.Sprint(r.Type, r.Name, r.Shape, r.Root, first)
}

func got(r *Response) string {
	if r.Err != "" {
		return ""
	}
	return fmt.Sprint(r.Type, r.Name, r.Shape, r.Root, r.FirstDims)
}

// play runs p on l in an order drawn by pick, until nothing can move, and
// returns how many times a slot was used.
func play(l *modelLane, p *program, pick choose) (bySlot int, err error) {
	members := len(l.members)
	at := make([][]int, members) // the round that each member is in, by name
	for m := range at {
		at[m] = make([]int, len(p.names))
	}
	// An action is a thing that can happen: what, to whom.
	type action struct {
		what   byte
		member int
		name   int
	}
	var can []action
	for step := 0; ; step++ {
		can = can[:0]
		for m, mem := range l.members {
			for n := range p.names {
				if at[m][n] < len(p.rounds[n]) && mem.pending[p.names[n]] == nil {
					can = append(can, action{'s', m, n})
				}
			}
			if len(l.board.mail[m]) > 0 {
				can = append(can, action{'c', m, 0})
			}
			if len(l.board.marks[m]) > 0 {
				can = append(can, action{'a', m, 0})
			}
			if len(l.board.stale[m]) > 0 {
				can = append(can, action{'n', m, 0})
			}
			if mem.read < len(l.board.log) {
				can = append(can, action{'r', m, 0})
			}
		}
		if len(l.outbox) > 0 {
			can = append(can, action{'p', 0, 0})
		}
		if len(can) == 0 {
			break
		}
		a := can[pick(len(can))]
		// In a large lane one choice moves a run of members, or the list of what
		// can happen would be made too often.
		for i, b := range can {
			if b != a && !(members > 16 && b.what == a.what && b.name == a.name && (i+step)%3 == 0) {
				continue
			}
			switch b.what {
			case 's':
				l.submit(b.member, &p.rounds[b.name][at[b.member][b.name]][b.member])
			case 'c':
				if _, err := l.coordinate(b.member); err != nil {
					return 0, err
				}
			case 'p':
				l.publish()
			case 'a':
				l.board.arrive(b.member)
			case 'n':
				l.notice(b.member)
			case 'r':
				resp, _, err := l.next(b.member)
				if err != nil {
					return 0, err
				}
				n := slices.Index(p.names, resp.Name)
				round := at[b.member][n]
				at[b.member][n]++
				if want := expect(p.rounds[n][round]); got(resp) != want {
					return 0, fmt.Errorf("member %d, %s, round %d: got %q (%s), want %q", b.member, resp.Name, round, got(resp), resp.Err, want)
				}
			}
		}
	}
	if left := l.leftover(); left != "" {
		return 0, fmt.Errorf("left over: %s", left)
	}
	for m := range at {
		for n := range p.names {
			if at[m][n] != len(p.rounds[n]) {
				return 0, fmt.Errorf("member %d has ended %d rounds of %s, not %d", m, at[m][n], p.names[n], len(p.rounds[n]))
			}
		}
	}
	for _, h := range l.members[0].history {
		if strings.HasPrefix(h, "slot") {
			bySlot++
		}
	}
	return bySlot, nil
}

func ranks(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// TestRandomPrograms finds no order of events in which members disagree, a
// result differs from the sequential model, or anything is left waiting.
func TestRandomPrograms(t *testing.T) {
	var slots int
	rapid.Check(t, func(t *rapid.T) {
		// Choices that rapid draws one by one can be shrunk but are mostly small;
		// those that come from a seed are even.
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		if rapid.Bool().Draw(t, "even") {
			pick = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).IntN
		}
		members := rapid.IntRange(2, 16).Draw(t, "members")
		capacity := rapid.IntRange(0, 4).Draw(t, "capacity")
		remote := rapid.Bool().Draw(t, "remote")
		p := newProgram(members, 1+pick(5), 12, pick)
		n, err := play(newModelLane(ranks(members), capacity, remote), p, pick)
		if err != nil {
			t.Fatal(err)
		}
		slots += n
	})
	if slots == 0 {
		t.Error("no slot was ever used: the programs do not test what they should")
	}
}

// TestRandomProgramsManyMembers does the same on 500 members, drawing only the
// seed. A lane of this size takes its time, so one seed in sixteen is played.
func TestRandomProgramsManyMembers(t *testing.T) {
	const members = 500
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		if rng.IntN(16) != 0 {
			return
		}
		capacity, remote := rng.IntN(3), rng.IntN(2) == 0
		p := newProgram(members, 2, 5, rng.IntN)
		if _, err := play(newModelLane(ranks(members), capacity, remote), p, rng.IntN); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFuseProperties: every Response is in exactly one Batch, Batches stand in
// the order of their first Responses and keep log order inside, and hold only
// what belongs together within the threshold. No two Batches of a kind
// that follow one another would have fitted into one.
func TestFuseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rs []*Response
		at := make(map[*Response]int)
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			r := &Response{
				Type:     rapid.SampledFrom([]RequestType{Allreduce, Allreduce, Allreduce, Broadcast, Barrier}).Draw(t, "type"),
				DType:    rapid.SampledFrom([]tensor.DType{tensor.Float32, tensor.Float64}).Draw(t, "dtype"),
				ReduceOp: rapid.SampledFrom([]tensor.ReduceOp{tensor.Sum, tensor.Max}).Draw(t, "op"),
				Device:   CPUDevice + rapid.Int32Range(0, 1).Draw(t, "device"),
				Shape:    tensor.Shape{rapid.Int64Range(0, 20).Draw(t, "size")},
				Prescale: float64(rapid.IntRange(1, 2).Draw(t, "prescale")),
			}
			if rapid.IntRange(0, 9).Draw(t, "err") == 0 {
				r.Err = "mismatch"
			}
			at[r] = len(rs)
			rs = append(rs, r)
		}
		threshold := rapid.Int64Range(0, 200).Draw(t, "threshold")
		plan := Fuse(nil, rs, threshold, FuseOptions{})
		again := Fuse(Fuse(nil, rs, 1<<30, FuseOptions{})[:0], rs, threshold, FuseOptions{}) // memory that has been used differently
		if fmt.Sprint(plan) != fmt.Sprint(again) {
			t.Fatalf("the plan depends on dst's memory:\n%v\n%v", plan, again)
		}
		seen := 0
		for i, b := range plan {
			if i > 0 && at[plan[i-1].Responses[0]] >= at[b.Responses[0]] {
				t.Fatalf("batch %d stands before batch %d", i, i-1)
			}
			var bytes int64
			for j, r := range b.Responses {
				seen++
				bytes += r.Shape[0] * int64(r.DType.Size())
				if j > 0 && at[b.Responses[j-1]] >= at[r] {
					t.Fatalf("batch %d is not in log order", i)
				}
				if len(b.Responses) > 1 && (r.Err != "" || r.Type != Allreduce) {
					t.Fatalf("batch %d has %+v in company", i, r)
				}
				if r.Type != b.Type || r.DType != b.DType || r.ReduceOp != b.ReduceOp || r.Prescale != b.Prescale ||
					r.Device != b.Responses[0].Device {
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
