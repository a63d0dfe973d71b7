package inproc

import (
	"fmt"
	"sync"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// tree is the board of a lane on several hosts: its members' ends, and the frames
// under way between their leaders.
type tree struct {
	world   *world
	members []int // world ranks
	boards  []treeboard.Board
	boxes   []box // by member: frames for it
}

// box holds frames until a goroutine hands them over. The goroutine runs while there are frames.
type box struct {
	mu      sync.Mutex
	frames  []frame
	running bool
}

type frame struct {
	from int
	body []byte
}

func newTree(w *world, members []int, hosts [][]int, bells []*bell) (*tree, error) {
	t := &tree{world: w, members: members, boards: make([]treeboard.Board, len(members)),
		boxes: make([]box, len(members))}
	for h, locals := range hosts {
		up, err := board.NewPrivate(treeboard.UpConfig(hosts, h, w.options.Cards, w.options.Early))
		if err != nil {
			return nil, err
		}
		down, err := board.NewPrivate(treeboard.DownConfig(hosts, h, w.options.Cards, w.options.Early))
		if err != nil {
			return nil, err
		}
		up.SetStop(w.err)
		down.SetStop(w.err)
		for _, m := range locals {
			t.boards[m], err = treeboard.New(treeboard.Config{
				Member: m, Hosts: hosts, Cards: w.options.Cards, Early: w.options.Early, Up: up, Down: down,
				Pipe:      pipe{t, m},
				Combine:   w.options.Combine,
				Ring:      bells[m].Ring,
				RingLocal: func(i int) { bells[locals[i]].Ring() },
				Abort:     func(err error) { w.abort(fmt.Errorf("rank %d: %w", members[m], err)) },
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// pipe is a member's treeboard.Pipe.
type pipe struct {
	*tree
	from int
}

func (p pipe) Send(to int, body []byte) {
	if f := p.world.options.OnFrame; f != nil {
		f(p.members[p.from], p.members[to], body)
	}
	b := &p.boxes[to]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frames = append(b.frames, frame{p.from, append([]byte(nil), body...)})
	if !b.running {
		b.running = true
		guard.Go("the delivery of frames", p.world.abort, func() { p.deliver(to) })
	}
}

// Flush has nothing to do: Send has handed them to the goroutine.
func (pipe) Flush() {}

// deliver hands over a member's frames until there are none.
func (t *tree) deliver(to int) {
	b := &t.boxes[to]
	for {
		b.mu.Lock()
		frames := b.frames
		b.frames = nil
		b.running = len(frames) > 0
		b.mu.Unlock()
		if len(frames) == 0 {
			return
		}
		for _, f := range frames {
			if err := t.boards[to].Receive(f.from, f.body); err != nil {
				t.world.abort(fmt.Errorf("frame of rank %d for rank %d: %w", t.members[f.from], t.members[to], err))
				return
			}
		}
		if wake := t.world.wake[t.members[to]].Load(); wake != nil {
			(*wake)()
		}
	}
}

// Attend implements transport.Attended.
func (n *network) Attend(wake func()) { n.world.wake[n.rank].Store(&wake) }

var _ transport.Attended = (*network)(nil)
