// Package metrics shows the counts of all ranks of a job: as Prometheus' text and as OpenMetrics, over HTTP, from the
// launcher. Package rendezvous brings the figures. A reader can only read, and never delays the job. The engine and
// package hvd never import this package.
package metrics

import (
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Job adds up the figures of a job's ranks. The counts of earlier worlds of an elastic job stay in the sums, which
// never shrink. Its methods are safe on any goroutine.
type Job struct {
	mu     sync.Mutex
	size   int // of the present world
	resets map[membership.Cause]uint64
	from   uint64          // the first generation of the present world
	ranks  map[int]*teller // of the present world
	total  sums            // of all ranks and worlds
	pairs  pairs           // likewise
	joined func() int      // how many ranks of the present world have joined
}

// teller is a rank that has sent its figures.
type teller struct {
	generation uint64
	last       *feed.Figures
}

// sums are values that only grow.
type sums struct {
	works       map[work]*feed.Work
	tensors     map[kind]uint64
	wire        map[wire]uint64
	negotiation feed.Histogram
	stepTimes   feed.Histogram
	steps       uint64 // of rank 0
	samples     uint64
	marks       uint64
	requests    uint64
	fusion      feed.Fusion
	early       feed.Early
	hosts       feed.Hosts
	byRank      map[int]*rankSums
	tables      map[tableKey]*feed.Table
}

// rankSums are the sums of one rank, or of all ranks from maxRanks on.
type rankSums struct {
	waited, nans uint64
	waitedFor    uint64 // by the other ranks, because this rank was the last
}

type (
	work struct {
		op    operation.Kind
		class feed.Class
	}
	wire struct {
		way feed.Way
		nic string
	}
	tableKey struct {
		set  int
		name string
	}
	kind struct {
		op    operation.Kind
		dtype tensor.DType
		set   int
	}
)

// maxRanks is how many ranks have figures of their own. Those of the other ranks are added up.
const maxRanks = 512

// maxNICs is how many names of network interfaces are told apart. Bytes over others are added up.
const maxNICs = 8

// maxTables is how many sparse tables are told apart. The others are added up.
const maxTables = 64

// NewJob returns a job without a world: call Form.
func NewJob() *Job {
	return &Job{resets: map[membership.Cause]uint64{}, ranks: map[int]*teller{},
		total: sums{works: map[work]*feed.Work{}, tensors: map[kind]uint64{}, wire: map[wire]uint64{},
			byRank: map[int]*rankSums{}, tables: map[tableKey]*feed.Table{}}}
}

// Form begins a world of size ranks, whose generations are from or later. joined counts the ranks that have come.
func (j *Job) Form(size int, from uint64, joined func() int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.size, j.from, j.joined = size, from, joined
	clear(j.ranks)
}

// Reset counts that the next world is formed anew.
func (j *Job) Reset(cause membership.Cause) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resets[cause]++
}

// Take takes a rank's figures: see rendezvous.Server.Figures. It drops figures that are damaged or belong to an earlier
// world.
func (j *Job) Take(rank int, generation uint64, _ string, value []byte) {
	f, err := feed.Decode(value)
	if err != nil {
		return // the rank has no figures yet
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if generation < j.from || rank >= j.size {
		return
	}
	t := j.ranks[rank]
	if t == nil || t.generation < generation {
		t = &teller{generation: generation, last: &feed.Figures{}}
		j.ranks[rank] = t
	}
	if t.generation > generation {
		return
	}
	f.Complete(t.last)
	j.total.add(rank, t.last, f)
	for _, l := range f.WaitedFor {
		if l.Rank < j.size {
			j.total.of(l.Rank).waitedFor += l.Nanoseconds
			j.pairs.add(time.Now(), rank, l)
		}
	}
	t.last = f
}

// label is the number under which a rank's figures are added up.
func label(rank int) int { return min(rank, maxRanks) }

func (s *sums) of(rank int) *rankSums {
	r := s.byRank[label(rank)]
	if r == nil {
		r = &rankSums{}
		s.byRank[label(rank)] = r
	}
	return r
}

// add adds the growth from before to f, which are figures of one rank and generation.
func (s *sums) add(rank int, before, f *feed.Figures) {
	old := map[work]*feed.Work{}
	for i := range before.Works {
		old[work{before.Works[i].Op, before.Works[i].Class}] = &before.Works[i]
	}
	for i := range f.Works {
		w := &f.Works[i]
		key := work{w.Op, w.Class}
		sum, o := s.works[key], old[key]
		if sum == nil {
			sum = &feed.Work{Op: w.Op, Class: w.Class}
			s.works[key] = sum
		}
		if o == nil {
			o = &feed.Work{}
		}
		sum.Bytes += more(o.Bytes, w.Bytes)
		sum.Bus += more(o.Bus, w.Bus)
		grow(&sum.Times, &o.Times, &w.Times)
	}
	s.addTraffic(before, f)
	counted := map[kind]uint64{}
	for _, t := range before.Tensors {
		counted[kind{t.Op, t.DType, t.Set}] = t.Count
	}
	for _, t := range f.Tensors {
		key := kind{t.Op, t.DType, t.Set}
		s.tensors[key] += more(counted[key], t.Count)
	}
	s.addTables(before, f)
	grow(&s.negotiation, &before.Negotiation, &f.Negotiation)
	grow(&s.stepTimes, &before.Steps, &f.Steps)
	if rank == 0 {
		s.steps += more(before.Steps.Count(), f.Steps.Count())
	}
	s.samples += more(before.Samples, f.Samples)
	s.marks += more(before.Marks, f.Marks)
	s.requests += more(before.Requests, f.Requests)
	s.fusion.Batches += more(before.Fusion.Batches, f.Fusion.Batches)
	s.fusion.Tensors += more(before.Fusion.Tensors, f.Fusion.Tensors)
	s.fusion.Bytes += more(before.Fusion.Bytes, f.Fusion.Bytes)
	s.fusion.Threshold = f.Fusion.Threshold
	s.early.Operations += more(before.Early.Operations, f.Early.Operations)
	s.early.Bytes = f.Early.Bytes
	s.hosts = f.Hosts
	r := s.of(rank)
	r.waited += more(before.Waited, f.Waited)
	r.nans += more(before.NaNs, f.NaNs)
}

// addTraffic adds the bytes that a rank has sent from before to f.
func (s *sums) addTraffic(before, f *feed.Figures) {
	var old [feed.NumWays][feed.NumClasses]uint64
	for _, t := range before.Traffic {
		old[t.Way][t.Class] = t.Bytes
	}
	for _, t := range f.Traffic {
		key := wire{t.Way, f.NICOf(t.Way)}
		if _, known := s.wire[key]; !known && key.nic != "" && s.nics() >= maxNICs {
			key.nic = "other"
		}
		s.wire[key] += more(old[t.Way][t.Class], t.Bytes)
	}
}

// addTables adds what a rank has done with its sparse tables from before to f.
func (s *sums) addTables(before, f *feed.Figures) {
	old := map[tableKey]*feed.Table{}
	for i := range before.Tables {
		old[tableKey{before.Tables[i].Set, before.Tables[i].Name}] = &before.Tables[i]
	}
	for i := range f.Tables {
		t := &f.Tables[i]
		o := old[tableKey{t.Set, t.Name}]
		if o == nil {
			o = &feed.Table{}
		}
		key := s.tableKey(t)
		sum := s.tables[key]
		if sum == nil {
			sum = &feed.Table{}
			s.tables[key] = sum
		}
		sum.Pulls += more(o.Pulls, t.Pulls)
		sum.PullTime += more(o.PullTime, t.PullTime)
		sum.Pushes += more(o.Pushes, t.Pushes)
		sum.PushTime += more(o.PushTime, t.PushTime)
		sum.Keys += more(o.Keys, t.Keys)
	}
}

// tableKey is under which labels a table is added up.
func (s *sums) tableKey(t *feed.Table) tableKey {
	key := tableKey{t.Set, t.Name}
	if _, known := s.tables[key]; !known && len(s.tables) >= maxTables {
		return tableKey{0, "other"}
	}
	return key
}

// nics is the number of network interfaces that have sums.
func (s *sums) nics() (n int) {
	for key := range s.wire {
		if key.nic != "" {
			n++
		}
	}
	return n
}

// more is how much a counter has grown. A counter that shrinks is wrong, and counts nothing.
func more(before, now uint64) uint64 { return max(now, before) - before }

func grow(sum, before, now *feed.Histogram) {
	for i := range sum.Counts {
		sum.Counts[i] += more(before.Counts[i], now.Counts[i])
	}
	sum.Sum += more(before.Sum, now.Sum)
}

// Ready says how many ranks of the present world have joined, and how many it has; 0 of 0 before the first world.
func (j *Job) Ready() (joined, size int) {
	j.mu.Lock()
	count, size := j.joined, j.size
	j.mu.Unlock()
	if count == nil {
		return 0, size
	}
	return count(), size
}
