package engine

import (
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/autotune"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// TuneOptions asks for a search for the settings with which the allreduces of the world's lane run fastest. Only rank
// 0's options count.
type TuneOptions struct {
	Warmup int     // points that are measured at the defaults and forgotten
	Steps  int     // rounds of a tensor that make a sample
	Points int     // how many points are measured
	Noise  float64 // variance of a score
	// Fixed reports whether a setting, by its column's name in the log, stays as it is.
	Fixed func(name string) bool
	Log   io.WriteCloser // takes the points as CSV; may be nil. Closed at the end
}

// tuner searches for settings. It lets package autotune watch rank 0's allreduces in the world's lane, on a goroutine
// of its own, and publishes each decision in the lane's log, where every rank reads it at the same place. It is no
// trial of two ways (package trial), because it searches many settings at once.
type tuner struct {
	engine   *Engine
	o        TuneOptions
	tunables []tunable
	base     settings // the settings that no tunable changes
	hosts    bool     // allreduces may be hierarchical
	ended    chan struct{}
	samples  chan autotune.Sample

	next     atomic.Pointer[settings] // decided, to be published
	thinking atomic.Bool              // a point has ended, its successor is not in force yet
	over     atomic.Bool              // nothing is measured any more

	meter *autotune.Meter // the driver's
}

// startTuner begins to tune l, the world's lane, if there is anything to tune.
func (e *Engine) startTuner(l *lane, o TuneOptions) error {
	t := &tuner{engine: e, o: o, base: l.settings, hosts: l.can.Hierarchical, ended: make(chan struct{}),
		samples: make(chan autotune.Sample, 1), meter: autotune.NewMeter(o.Steps)}
	t.tunables = tunables(l.settings, l.can.Shared, l.can.ChoosesForm, l.early.room, func(name string) bool {
		return name == "tensor_fusion_threshold" && l.settings.fusionThreshold == 0 || o.Fixed != nil && o.Fixed(name)
	})
	params := make([]autotune.Param, len(t.tunables))
	for i := range params {
		params[i] = t.tunables[i].Param
	}
	search, err := autotune.NewSearch(autotune.Options{Params: params, Warmup: o.Warmup, Points: o.Points,
		Noise: o.Noise})
	if err != nil {
		return err
	}
	e.tuner = t
	guard.Go("the autotuner", e.net.Abort, func() { t.think(search) })
	return nil
}

// think gives samples to the search until the search has finished.
func (t *tuner) think(search *autotune.Search) {
	defer close(t.ended)
	log := tuneLog{w: t.o.Log, hosts: t.hosts, cached: t.engine.opts.CacheCapacity > 0}
	defer func() {
		t.over.Store(true)
		if err := log.close(); err != nil {
			t.engine.opts.Log.Warn("autotune log", "error", err)
		}
	}()
	log.header()
	var work autotune.Work
	for {
		var sample autotune.Sample
		select {
		case sample = <-t.samples:
		case <-t.engine.quit:
			return
		}
		trials := len(search.Trials())
		alike := work.Alike(sample.Bytes, trials == 0)
		if work.Lost() {
			search.GiveUp()
			t.engine.opts.Log.Info("Autotuner: gave up, since the job reduces other tensors than at the start; the " +
				"defaults stay")
		} else if !alike || !search.Observe(sample.Score) {
			t.thinking.Store(false)
			continue
		}
		if all := search.Trials(); len(all) > trials {
			last := all[len(all)-1]
			log.row(t.apply(last.Point), last)
			t.engine.opts.Log.Info("Autotuner: measured", "settings", t.describe(last.Point), "bytes/µs", last.Score)
		}
		s := t.apply(search.Current())
		t.next.Store(&s)
		if search.Finished() {
			best := search.Best()
			log.row(s, best)
			t.engine.opts.Log.Info("Autotuner: finished", "settings", t.describe(best.Point), "bytes/µs", best.Score)
			return
		}
	}
}

// apply turns a point of the search into settings.
func (t *tuner) apply(p autotune.Point) settings {
	s := t.base
	for i, v := range p {
		t.tunables[i].set(&s, v)
	}
	return s
}

func (t *tuner) describe(p autotune.Point) string {
	text := ""
	for i, v := range p {
		text += fmt.Sprintf(" %s=%.4g", t.tunables[i].Name, v)
	}
	return text[min(1, len(text)):]
}

// executed notes an allreduce of the lane. The driver calls it.
func (t *tuner) executed(parts []part) {
	if t.over.Load() || t.thinking.Load() {
		return
	}
	now := time.Now()
	for i := range parts {
		sample, ok := t.meter.Executed(parts[i].resp.Name, parts[i].bytes, now)
		if !ok {
			continue
		}
		t.thinking.Store(true) // until the search has told whether the point goes on
		t.meter.Reset()
		select {
		case t.samples <- sample:
		default:
		}
		return
	}
}

// publish puts a decision into the lane's log, and reports whether it did anything. The driver of member 0 calls it.
func (t *tuner) publish(l *lane) bool {
	s := t.next.Swap(nil)
	if s == nil {
		return false
	}
	l.publish(&negotiate.Response{Type: operation.Tune, Device: negotiate.CPUDevice, FirstDims: s.encode(), Prescale: 1,
		Postscale: 1, Card: negotiate.NoCard})
	return true
}

// tuned takes a Tune record of the lane's log.
func (l *lane) tuned(resp *negotiate.Response) error {
	s, err := decodeSettings(resp.FirstDims)
	if err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	l.settings = s
	l.run.Tune(s.data)
	l.boundEarly()
	if t := l.engine.tuner; t != nil && l == l.engine.world {
		t.meter.Reset()
		t.thinking.Store(false)
	}
	return nil
}

// tuneLog writes the points as CSV: first Horovod's columns, then ours.
type tuneLog struct {
	w      io.WriteCloser // nil: nothing is written
	hosts  bool           // allreduces are hierarchical unless they are set not to be
	cached bool
	err    error
}

func (g *tuneLog) header() {
	g.write("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms," +
		"tensor_fusion_threshold,score,chunk_kb,piece_kb,message_kb,early_bytes")
}

func (g *tuneLog) row(s settings, t autotune.Trial) {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	flag := func(on bool) string {
		if on {
			return "1"
		}
		return "0"
	}
	g.write(flag(g.hosts && !s.data.Flat) + ",0,0," + flag(g.cached) + "," +
		number(float64(s.cycleTime)/float64(time.Millisecond)) + "," + number(float64(s.fusionThreshold)/(1<<20)) +
		"," +
		number(t.Score) + "," + number(float64(s.data.Chunk)/1024) + "," + number(float64(s.data.Piece)/1024) + "," +
		number(float64(s.data.Message)/1024) + "," + number(float64(s.early)))
}

func (g *tuneLog) write(line string) {
	if g.w == nil || g.err != nil {
		return
	}
	_, g.err = io.WriteString(g.w, line+"\n")
}

func (g *tuneLog) close() error {
	if g.w == nil {
		return nil
	}
	if err := g.w.Close(); g.err == nil {
		g.err = err
	}
	return g.err
}
