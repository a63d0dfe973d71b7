package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// measured makes engines that measure the links between simulated hosts. Without an engine for some ranks, what the
// network of these does is late's. If one of them is killed before another rank has opened its lane, that rank has no
// engine either.
func measured(t *testing.T, hosts [][]int, late func(rank int, n transport.Network) bool) []*Engine {
	t.Helper()
	o := Options{FusionThreshold: 1 << 20, CacheCapacity: 64, MeasureLinks: true}
	for _, ranks := range hosts {
		o.Size += len(ranks)
	}
	engines := make([]*Engine, o.Size)
	var wg sync.WaitGroup
	for r, n := range inproc.NewWorld(o.Size, inproc.Options{Hosts: hosts, Cards: 64, ChunkBytes: 4096,
		Combine: func(members []int) transport.Combiner { return negotiate.NewCombiner(members) }}) {
		o := o
		o.Rank = r
		wg.Go(func() {
			if late != nil && late(r, n) {
				return
			}
			var err error
			engines[r], err = New(n, o)
			if err != nil && (late == nil || !strings.Contains(err.Error(), "was killed")) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return engines
}

// All ranks measure before their first operation, and choose alike. A process set follows its own hosts.
func TestMeasuredLinksTuneAllLanes(t *testing.T) {
	for _, hosts := range [][][]int{{{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}, {4}}} {
		engines := measured(t, hosts, nil)
		t.Cleanup(func() { each(engines, func(_ int, e *Engine) { e.Shutdown(limit) }) })
		each(engines, func(r int, e *Engine) {
			f := e.Figures().Hosts
			if f.Latency == 0 || f.Rate == 0 || f.Took == 0 {
				t.Errorf("rank %d: %+v", r, f)
			}
			f.Took = engines[0].Figures().Hosts.Took
			if f != engines[0].Figures().Hosts {
				t.Errorf("rank %d has %+v, rank 0 %+v", r, f, engines[0].Figures().Hosts)
			}
			if w := e.world.settings.data; w.Rate == 0 || w != engines[0].world.settings.data {
				t.Errorf("rank %d is tuned to %+v", r, w)
			}
			if len(e.Figures().Traffic) > 0 {
				t.Errorf("rank %d counts the measurement as an operation's: %+v", r, e.Figures().Traffic)
			}
			for _, ranks := range [][]int{{0, 1}, {0, 2, 3}} {
				id, err := e.AddSet(ranks)
				if err != nil {
					t.Error(err)
					continue
				}
				if s := e.sets[id].lane; s != nil {
					want := collective.DefaultTuning.Over(e.links.among(ranks))
					if s.settings.data != want {
						t.Errorf("rank %d: set %v is tuned to %+v, want %+v", r, ranks, s.settings.data, want)
					}
				}
			}
			if err := do(t, e, sum("all", floats(20000))); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
}

// Nothing is measured within a host, or if nobody asks for it.
func TestNothingToMeasure(t *testing.T) {
	one := measured(t, [][]int{{0, 1}}, nil)
	off := newHosts(t, [][]int{{0}, {1}}, nil)
	defer each(one, func(_ int, e *Engine) { e.Shutdown(limit) })
	for _, e := range append(one, off...) {
		if f := e.Figures().Hosts; f != (feed.Hosts{}) || e.world.settings.data != collective.DefaultTuning {
			t.Errorf("%+v, %+v", f, e.world.settings.data)
		}
	}
}

// A rank that dies or hangs while the others measure does not hold these: the abort that names it ends the measurement,
// and the first operation has the cause.
func TestDeathDuringTheMeasurement(t *testing.T) {
	for lost := range 4 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			begun := time.Now()
			engines := measured(t, [][]int{{0}, {1, 2}, {3}}, func(rank int, n transport.Network) bool {
				if rank == lost {
					time.Sleep(20 * time.Millisecond)
					n.Abort(fmt.Errorf("rank %d was killed", lost))
				}
				return rank == lost
			})
			for r, e := range engines {
				if e == nil {
					continue
				}
				_, err := e.Enqueue(sum("x", floats(1)))
				if want := fmt.Sprintf("rank %d was killed", lost); err == nil || !strings.Contains(err.Reason, want) {
					t.Errorf("rank %d: %v, want %q", r, err, want)
				}
				e.Shutdown(limit)
			}
			if took := time.Since(begun); took > limit/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A rank that waits for others in the measurement says so, as in an operation: the heartbeat needs it.
func TestWaitsOfTheMeasurementAreNoticed(t *testing.T) {
	n := inproc.NewWorld(2, inproc.Options{Hosts: [][]int{{0}, {1}}, Cards: 64})
	aged := make(chan time.Duration, 1)
	e, err := New(n[0], Options{Size: 2, CacheCapacity: 64, MeasureLinks: true, Stalled: func(oldest time.Duration) {
		n[0].Abort(errors.New("rank 1 does not answer"))
		select {
		case aged <- oldest:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer n[1].Close()
	defer e.Shutdown(limit)
	if age := <-aged; age < 5*linksNap || e.links.hosts != nil {
		t.Errorf("after %v", age)
	}
}

// A rank that never measures, and does not die either, ends the measurement of the others after twice the start
// time-out.
func TestRankThatDoesNotMeasure(t *testing.T) {
	n := inproc.NewWorld(3, inproc.Options{Hosts: [][]int{{0, 1}, {2}}, Cards: 64})
	defer n[2].Close()
	var engines [2]*Engine
	var wg sync.WaitGroup
	for r := range engines {
		wg.Go(func() {
			var err error
			if engines[r], err = New(n[r], Options{Rank: r, Size: 3, CacheCapacity: 64, MeasureLinks: true,
				StartTimeout: 400 * time.Millisecond}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for r, e := range engines {
		const want = "the links between hosts were not measured within 800ms: rank 0 waits for rank 2 " +
			"(GOROVOD_MEASURE_LINKS"
		if _, err := e.Enqueue(sum("x", floats(1))); err == nil || !strings.HasPrefix(err.Reason, want) {
			t.Errorf("rank %d: %v", r, err)
		}
		e.Shutdown(limit)
	}
}
