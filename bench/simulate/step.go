package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// shape is one job to simulate.
type shape struct {
	hosts, perHost, tensors int
	cached                  bool
	early                   int // up to how many bytes of data travel with a mark, on up to four hosts
}

// cost is the cost of one step of a job.
type cost struct {
	frames   int           // between leaders, in all
	linkUp   int           // the most bytes that a leader sends to its parent
	linkDown int           // the most bytes that a parent sends to a leader
	requests int           // requests that the coordinator gets: its Steps
	work     time.Duration // the coordinator's time for them
}

// job is a world of ranks that only negotiate, and reduce nothing. Their boards, caches and coordinator are those of
// the engine.
type job struct {
	shape
	lanes   []*transport.Lane
	workers []*negotiate.Worker
	coord   *negotiate.Coordinator
	answers [][]byte
	done    []int // by rank: tensors agreed upon in this step

	ahead        *ahead // nil: no data travels with the marks
	meter        *meter
	counting     atomic.Bool
	frames       atomic.Int64
	up, down     []atomic.Int64 // by rank, of leaders
	steps        int
	work         time.Duration
	requestFault error
}

func newJob(s shape) (*job, error) {
	n := s.hosts * s.perHost
	j := &job{shape: s, done: make([]int, n), up: make([]atomic.Int64, n), down: make([]atomic.Int64, n),
		meter: newMeter(s.hosts, s.perHost)}
	hosts, members := make([][]int, s.hosts), make([]int, n)
	for r := range n {
		members[r] = r
		hosts[r/s.perHost] = append(hosts[r/s.perHost], r)
	}
	capacity := 0
	if s.cached {
		capacity = s.tensors
	}
	for r, net := range inproc.NewWorld(n, inproc.Options{Hosts: hosts, Cards: max(1, capacity),
		ChunkBytes: 8 << 10, Depth: 2, Early: s.early,
		Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }, OnFrame: j.count}) {
		lane, err := net.OpenLane(0, 0, members)
		if err != nil {
			return nil, err
		}
		j.lanes = append(j.lanes, lane)
		j.workers = append(j.workers, negotiate.NewWorker(r))
	}
	j.coord = negotiate.NewCoordinator(members, j.lanes[0].Coordination, negotiate.Options{Capacity: capacity})
	return j, nil
}

// count is inproc's OnFrame. A frame goes up if its receiver is a leader of a lower rank than its sender.
func (j *job) count(from, to int, frame []byte) {
	j.meter.pass(from, to, len(frame))
	if !j.counting.Load() {
		return
	}
	j.frames.Add(1)
	if to < from {
		j.up[from].Add(int64(len(frame)))
	} else {
		j.down[to].Add(int64(len(frame)))
	}
}

// step lets every rank submit every tensor, and ends when all have agreed on all.
func (j *job) step() error {
	clear(j.done)
	for i := range j.tensors {
		for r := range j.lanes {
			j.submit(r, i)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for left := len(j.lanes); left > 0; {
		left = 0
		if err := j.coordinate(); err != nil {
			return err
		}
		for r := range j.lanes {
			if err := j.read(r); err != nil {
				return err
			}
			if j.done[r] < j.tensors {
				left++
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%+v: %d ranks have not agreed after a minute", j.shape, left)
		}
	}
	return nil
}

func (j *job) submit(rank, i int) {
	r := negotiate.Request{Name: fmt.Sprintf("gradient.%d", i), Shape: tensor.Shape{1000}, Device: negotiate.CPUDevice,
		Prescale: 1, Postscale: 1}
	b := j.lanes[rank].Board
	if card, gen, cached := j.workers[rank].Lookup(&r); cached && j.mark(rank, card, gen) {
		return
	}
	p := r.Append(nil)
	for !b.Post(p) { // the board is full: let the earlier Requests be taken
		j.coordinate()
		for h := range j.hosts {
			j.turn(h * j.perHost)
		}
	}
}

func (j *job) mark(rank int, card, gen uint32) bool {
	if j.ahead != nil {
		return j.ahead.mark(rank, card, gen)
	}
	return j.lanes[rank].Board.Mark(card, gen)
}

// coordinate does the work of rank 0's engine.
func (j *job) coordinate() error {
	b := j.lanes[0].Coordination
	publish := func() {
		for len(j.answers) > 0 && b.Publish(j.answers[0]) > 0 {
			j.answers = j.answers[1:]
		}
	}
	publish()
	j.turn(0)
	b.TakeRequests(func(from []int, p []byte) {
		var r negotiate.Request
		if err := r.Decode(p); err != nil {
			j.requestFault = err
			return
		}
		start := time.Now()
		resps, err := j.coord.Step(from, &r)
		j.work += time.Since(start)
		j.steps++
		if err != nil {
			j.requestFault = err
		}
		for _, resp := range resps {
			j.answers = append(j.answers, resp.Append(nil))
		}
		publish()
	})
	return j.requestFault
}

// turn calls Poll of a rank's board, if it has that.
func (j *job) turn(rank int) {
	if p := j.lanes[rank].Poller; p != nil {
		p.Poll()
	}
}

// read reads all that is new in a rank's log.
func (j *job) read(rank int) error {
	b, w := j.lanes[rank].Board, j.workers[rank]
	j.turn(rank)
	b.TakeStale(func(card, _ uint32) { j.requestFault = fmt.Errorf("rank %d: card %d has been retired", rank, card) })
	if p := j.lanes[rank].Poller; p != nil {
		p.Cut()
	}
	for _, rec := range b.Next() {
		switch rec.Kind {
		case transport.RecordResult:
			if err := j.ahead.check(rank, &rec); err != nil {
				return err
			}
			fallthrough
		case transport.RecordCard:
			if _, err := w.Card(rec.Card); err != nil {
				return err
			}
		default:
			var resp negotiate.Response
			if err := resp.Decode(rec.Payload); err != nil {
				return err
			}
			w.Apply(&resp)
		}
		j.done[rank]++
	}
	return j.requestFault
}

// fill makes the steps after which each name has a card: a name has one from the second time on.
func (j *job) fill() error {
	for range 2 {
		if err := j.step(); err != nil {
			return err
		}
	}
	return nil
}

// simulate returns what a step costs once the caches are filled.
func simulate(s shape) (cost, error) {
	j, err := newJob(s)
	if err != nil {
		return cost{}, err
	}
	if err := j.fill(); err != nil {
		return cost{}, err
	}
	j.steps, j.work = 0, 0
	j.counting.Store(true)
	if err := j.step(); err != nil {
		return cost{}, err
	}
	c := cost{frames: int(j.frames.Load()), requests: j.steps, work: j.work}
	for r := range j.lanes {
		c.linkUp = max(c.linkUp, int(j.up[r].Load()))
		c.linkDown = max(c.linkDown, int(j.down[r].Load()))
	}
	return c, nil
}
