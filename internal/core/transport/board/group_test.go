package board

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
)

func mustMarkGroup(t testing.TB, b *Board, member int, group []transport.Mark, want Result) {
	t.Helper()
	got, err := b.MarkGroup(member, group)
	if err != nil || got != want {
		t.Fatalf("MarkGroup(%d, %v) = %v, %v, want %v", member, group, got, err, want)
	}
}

func acquireGroup(t testing.TB, b *Board, n int) []transport.Mark {
	t.Helper()
	group := make([]transport.Mark, n)
	for i := range group {
		group[i].Card, group[i].Gen = mustAcquire(t, b)
	}
	return group
}

func cardsOf(records []transport.Record) (cards []uint32) {
	for _, r := range records {
		cards = append(cards, r.Card)
	}
	return cards
}

func TestAStaleMemberOfAGroupMarksNone(t *testing.T) {
	for stale := range 3 {
		b := mustNew(t, Standard(2, 2, 4))
		group := acquireGroup(t, b, 3)
		mustMarkGroup(t, b, 0, group, Marked)
		if _, ok, err := b.Retire(group[stale].Card); !ok || err != nil {
			t.Fatal(ok, err)
		}
		mustMarkGroup(t, b, 1, group, Stale)
		mustNext(t, b, 1, 0)
		rest := slices.Delete(slices.Clone(group), stale, stale+1)
		for _, m := range rest {
			if marked, err := b.Marked(m.Card); err != nil || !slices.Equal(marked, []int{0}) {
				t.Errorf("card %d is marked by %v, %v", m.Card, marked, err)
			}
		}
		// only cards 0 to 3 exist
		mustMarkGroup(t, b, 1, append(slices.Clone(rest), transport.Mark{Card: 4, Gen: 1}), Stale)
		mustMarkGroup(t, b, 1, rest, Completed)
		if got, want := cardsOf(mustNext(t, b, 0, 2)), []uint32{rest[0].Card, rest[1].Card}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	}
}

// A group publishes those of its cards that all other members have marked, if these are only some of its cards.
func TestAGroupCompletesWhatItCan(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 4))
	group := acquireGroup(t, b, 3)
	mustMark(t, b, 0, group[1].Card, group[1].Gen, Marked)
	mustMarkGroup(t, b, 1, group, Completed)
	if got := cardsOf(mustNext(t, b, 0, 1)); got[0] != group[1].Card {
		t.Errorf("published %v", got)
	}
	mustMarkGroup(t, b, 0, []transport.Mark{group[2], group[0]}, Completed)
	if got := cardsOf(mustNext(t, b, 0, 2)); !slices.Equal(got, []uint32{group[2].Card, group[0].Card}) {
		t.Errorf("published %v", got)
	}
	if err := b.Close(0); err != nil {
		t.Fatal(err)
	}
	mustMarkGroup(t, b, 1, group, Closed)
}

func TestACardTwiceInAGroupIsAnError(t *testing.T) {
	b := mustNew(t, Standard(2, 2, 4))
	group := acquireGroup(t, b, 1)
	if _, err := b.MarkGroup(0, append(group, group...)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v, want %v", err, ErrCorrupt)
	}
}

// TestGroupsStayTogether lets members mark a group and some other cards at random moments, while all of them read and
// so cut the log wherever it ends. On every member the group's records must be adjacent, in one batch.
func TestGroupsStayTogether(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { groupsTogether(t, seed) })
	}
}

func groupsTogether(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	members, size, singles, rounds := 2+rng.IntN(3), 2+rng.IntN(4), 1+rng.IntN(3), 300
	c := small(members, size+singles)
	mem := make([]byte, Bytes(c)+64)
	mem = mem[-int(addr(mem))&63:][:Bytes(c)]
	if _, err := Format(mem, c); err != nil {
		t.Fatal(err)
	}
	boards := make([]*Board, members) // a Board per member, as in separate processes
	for m := range boards {
		var err error
		if boards[m], err = Attach(mem, c); err != nil {
			t.Fatal(err)
		}
	}
	all := acquireGroup(t, boards[0], size+singles)
	var failed atomic.Bool
	var wg sync.WaitGroup
	for m, b := range boards {
		wg.Go(func() {
			r := groupReader{b: b, me: m, size: size, done: make([]int, size+singles),
				pending: make([]bool, size+singles)}
			rng := rand.New(rand.NewPCG(seed, uint64(m)+1))
			deadline := time.Now().Add(time.Minute)
			for !r.finished(rounds) && !failed.Load() {
				err := r.step(rng, all, rounds)
				if err == nil && time.Now().After(deadline) {
					err = fmt.Errorf("not done in time; executed %v", r.done)
				}
				if err != nil {
					t.Errorf("seed %d: member %d: %v", seed, m, err)
					failed.Store(true)
				}
				if rng.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
}

// groupReader is a member; its group is the first size cards.
type groupReader struct {
	b        *Board
	me, size int
	done     []int  // by card: how often it has been read
	pending  []bool // by card: marked and not read
}

func (r *groupReader) finished(rounds int) bool {
	return !slices.ContainsFunc(r.done, func(n int) bool { return n < rounds })
}

func (r *groupReader) step(rng *rand.Rand, all []transport.Mark, rounds int) error {
	switch k := rng.IntN(3); {
	case k == 0:
		return r.read()
	case k == 1 && !r.pending[0] && r.done[0] < rounds:
		for i := range r.size {
			r.pending[i] = true
		}
		// Each member has an order of its own. The member that completes the group decides.
		group := slices.Clone(all[:r.size])
		rng.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		return r.mark(group)
	case k == 2:
		if i := r.size + rng.IntN(len(all)-r.size); !r.pending[i] && r.done[i] < rounds {
			r.pending[i] = true
			return r.mark(all[i : i+1])
		}
	}
	return nil
}

func (r *groupReader) mark(group []transport.Mark) error {
	result, err := r.b.MarkGroup(r.me, group)
	if err == nil && result > Completed {
		err = fmt.Errorf("marking %v: %v", group, result)
	}
	return err
}

func (r *groupReader) read() error {
	records, err := r.b.Next(r.me)
	cards := cardsOf(records)
	inGroup := 0
	for _, s := range cards {
		if int(s) < r.size {
			inGroup++
		} else if inGroup%r.size != 0 {
			return fmt.Errorf("batch %v tears the group of %d cards", cards, r.size)
		}
		if !r.pending[s] {
			return fmt.Errorf("batch %v: card %d was not marked", cards, s)
		}
		r.pending[s] = false
		r.done[s]++
	}
	if inGroup%r.size != 0 {
		return fmt.Errorf("batch %v has %d of the %d cards of the group", cards, inGroup, r.size)
	}
	return err
}
