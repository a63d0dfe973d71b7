package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// group is a world with one lane of all its ranks.
type group struct {
	networks []transport.Network
	lanes    []*Lane
}

// newGroup makes buffers and pieces so small that little data has many of them.
func newGroup(t testing.TB, size int, o inproc.Options, options ...Options) *group {
	t.Helper()
	options = append(options, Options{})
	if o.ChunkBytes == 0 {
		o.ChunkBytes = testChunk
	}
	o.Cards = 1
	g := &group{networks: inproc.NewWorld(size, o)}
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	for _, n := range g.networks {
		l, err := n.OpenLane(0, 0, members)
		if err != nil {
			t.Fatal(err)
		}
		lane := NewLane(l, options[0])
		lane.Tune(Tuning{Chunk: o.ChunkBytes, Piece: testPiece, Message: messageBytes})
		if h := lane.hier; h != nil {
			h.block, h.least, h.little = testBlock, testPiece, testChunk
		}
		g.lanes = append(g.lanes, lane)
	}
	t.Cleanup(func() {
		for _, n := range g.networks {
			if err := n.Err(); err != nil {
				t.Errorf("network: %v", err)
			}
			n.Close()
		}
	})
	return g
}

const (
	testChunk = 1024
	testPiece = 128
	testBlock = 320
)

// job is one collective: each rank's operation, and the check of its result.
type job struct {
	name  string
	start func(l *Lane) Op
	check func(rank int) error
}

// runScheduled drives all ranks in this goroutine, in random order and over a Comm that delays, and fails if none of
// them moves for many turns.
func (g *group) runScheduled(t *testing.T, rng *rand.Rand, jobs []job) {
	t.Helper()
	if err := g.schedule(rng, jobs); err != nil {
		t.Fatal(err)
	}
}

// schedule is runScheduled for a test that fails in its own way.
func (g *group) schedule(rng *rand.Rand, jobs []job) error {
	delay(g, rng)
	size := len(g.lanes)
	at := make([]int, size)
	ops := make([]Op, size)
	// Each rank gets its turn with its own probability, which changes now and then. So no rank stays behind for ever.
	weights := make([]int, size)
	for left, idle, turns := size*len(jobs), 0, 0; left > 0; idle, turns = idle+1, turns+1 {
		if idle > 100_000 {
			return fmt.Errorf("deadlock: ranks are at jobs %v of %d (%s)", at, len(jobs), jobs[minOf(at)].name)
		}
		if turns%64 == 0 {
			for r := range weights {
				weights[r] = 1 + rng.IntN(16)
			}
		}
		r := rng.IntN(size)
		if at[r] == len(jobs) || rng.IntN(16) >= weights[r] {
			continue
		}
		j := &jobs[at[r]]
		if ops[r] == nil {
			ops[r] = j.start(g.lanes[r])
			idle = 0
		}
		moved := g.lanes[r].Moved()
		done, err := ops[r].Advance()
		if err != nil {
			return fmt.Errorf("%s: rank %d: %w", j.name, r, err)
		}
		if g.lanes[r].Moved() != moved {
			idle = 0
		}
		if done {
			if err := j.check(r); err != nil {
				return fmt.Errorf("%s: %w", j.name, err)
			}
			ops[r] = nil
			at[r]++
			left--
		}
	}
	return nil
}

func minOf(v []int) int {
	m := v[0]
	for _, x := range v {
		m = min(m, x)
	}
	return m
}

// runConcurrently drives each rank in a goroutine of its own, as an engine does: poll, arm the bell, poll once more,
// sleep. If a sleep ends by its limit, a ring was missing.
func (g *group) runConcurrently(t *testing.T, jobs []job) {
	t.Helper()
	const limit = 20 * time.Second
	var wg sync.WaitGroup
	for r := range g.lanes {
		wg.Go(func() {
			bell := g.networks[r].Bell()
			for i := range jobs {
				j := &jobs[i]
				op := j.start(g.lanes[r])
				for {
					done, err := op.Advance()
					if !done && err == nil {
						ticket := bell.Arm()
						if done, err = op.Advance(); done || err != nil {
							bell.Disarm()
						} else {
							began := time.Now()
							bell.Sleep(ticket, limit)
							if time.Since(began) >= limit {
								err = fmt.Errorf("nobody rang")
							}
						}
					}
					if err == nil {
						err = g.networks[r].Err()
					}
					if err != nil {
						t.Errorf("%s: rank %d: %v", j.name, r, err)
						g.networks[r].Abort(fmt.Errorf("rank %d has failed its test", r))
						return
					}
					if done {
						break
					}
				}
				if err := j.check(r); err != nil {
					t.Errorf("%s: %v", j.name, err)
				}
			}
		})
	}
	wg.Wait()
}

// guarded is a buffer between two strips that nobody may write.
type guarded struct{ all []byte }

const (
	strip     = 64
	stripByte = 0xA5
)

func newGuarded(content []byte) guarded {
	g := guarded{bytes.Repeat([]byte{stripByte}, len(content)+2*strip)}
	copy(g.data(), content)
	return g
}

func (g guarded) data() []byte { return g.all[strip : len(g.all)-strip] }

func (g guarded) intact() bool {
	want := bytes.Repeat([]byte{stripByte}, strip)
	return bytes.Equal(g.all[:strip], want) && bytes.Equal(g.all[len(g.all)-strip:], want)
}

// expect compares rank's memory with want.
func (g guarded) expect(rank int, want []byte) error {
	if !g.intact() {
		return fmt.Errorf("rank %d: wrote outside its output", rank)
	}
	got := g.data()
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("rank %d: byte %d of %d is %#x, want %#x", rank, i, len(want), got[i], want[i])
		}
	}
	return nil
}
