package engine

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/autotune"
)

// logFile is where a tuner writes; closing it is noted.
type logFile struct {
	bytes.Buffer
	closed bool
}

func (f *logFile) Close() error {
	f.closed = true
	return nil
}

// TestTuning lets ranks reduce while rank 0 searches, until the search has ended. It expects right sums all the time,
// the same settings on all ranks at the end, and a log with a row for every point.
func TestTuning(t *testing.T) {
	const size, points = 3, 6
	for name, world := range map[string]func(change func(o *Options)) []*Engine{
		"shared":      func(change func(o *Options)) []*Engine { return makeWorld(t, size, true, change) },
		"connections": func(change func(o *Options)) []*Engine { return makeWorld(t, size, false, change) },
		"hosts":       func(change func(o *Options)) []*Engine { return makeHosts(t, twoHosts, 4096, change) },
	} {
		t.Run(name, func(t *testing.T) {
			var file logFile
			engines := world(func(o *Options) {
				o.Tune = &TuneOptions{Warmup: 1, Steps: 2, Points: points, Noise: 0.8, Log: &file}
			})
			done := func() bool { return engines[0].tuner.over.Load() }
			var ends sync.Map // the step after which rank 0 stops, the same for all
			each(engines, func(r int, e *Engine) {
				for step := range 100000 {
					var ops []*Entry
					data := make([][]byte, 5)
					for i := range data {
						data[i] = floats(float32(r+step%7), float32(i))
						en, err := e.Enqueue(sum(fmt.Sprint("t", i), data[i]))
						if err != nil {
							t.Errorf("step %d: %v", step, err)
							return
						}
						ops = append(ops, en)
					}
					for i, en := range ops {
						if !e.Wait(en, limit) || en.Err() != nil {
							t.Errorf("step %d: tensor %d: %v", step, i, en.Err())
							return
						}
						en.Release()
						if want := float32(3*(step%7) + 3); float(data[i], 0) != want ||
							float(data[i], 1) != float32(3*i) {
							t.Errorf("step %d rank %d: %v, %v", step, r, float(data[i], 0), float(data[i], 1))
						}
					}
					// Rank 0 decides when it is over, by a sum, so that all stop alike.
					stop := floats(0)
					if r == 0 && done() {
						stop = floats(1)
					}
					if err := do(t, e, sum("stop", stop)); err != nil {
						t.Error(err)
						return
					}
					if float(stop, 0) > 0 {
						ends.Store(r, step)
						return
					}
				}
				t.Error("the search does not end")
			})
			first := engines[0].world.settings
			for r, e := range engines {
				if e.world.settings != first {
					t.Errorf("rank %d has the settings %+v, rank 0 %+v", r, e.world.settings, first)
				}
				if e.world.early.bound != first.early || (first.early > 0) != (name == "hosts") {
					t.Errorf("rank %d: %d bytes travel ahead, %d by the settings", r, e.world.early.bound, first.early)
				}
			}
			each(engines, func(r int, e *Engine) { e.Shutdown(limit) })
			lines := strings.Split(strings.TrimSpace(file.String()), "\n")
			if !file.closed || len(lines) != 1+points+1 || !strings.HasPrefix(lines[0],
				"hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"+
					"tensor_fusion_threshold,score") {
				t.Errorf("log (closed: %v):\n%s", file.closed, file.String())
			}
		})
	}
}

// TestTuningEndsWithTheEngine: a search that has not finished ends with a shutdown.
func TestTuningEndsWithTheEngine(t *testing.T) {
	var file logFile
	engines := makeWorld(t, 2, true, func(o *Options) { o.Tune = &TuneOptions{Steps: 1, Points: 100, Log: &file} })
	each(engines, func(r int, e *Engine) {
		for range 20 {
			if err := do(t, e, sum("x", floats(1))); err != nil {
				t.Error(err)
			}
		}
		e.Shutdown(limit)
	})
	if !file.closed {
		t.Error("the log is left open")
	}
}

// TestTuningGivesUp: a job reduces large tensors at first and small ones from then on. It ends with the defaults, and
// the last row of the log says so.
func TestTuningGivesUp(t *testing.T) {
	var file logFile
	engines := makeWorld(t, 1, true, func(o *Options) { o.Tune = &TuneOptions{Steps: 1, Points: 100, Log: &file} })
	e := engines[0]
	before := e.world.settings
	deadline := time.Now().Add(limit)
	for step := 0; !e.tuner.over.Load(); step++ {
		data := floats(1)
		if step < 50 {
			data = make([]byte, 1<<12)
		}
		if err := do(t, e, sum("x", data)); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the search does not end")
		}
	}
	if err := do(t, e, sum("x", floats(1))); err != nil { // the settings come with it
		t.Fatal(err)
	}
	if e.world.settings != before {
		t.Errorf("the settings are %+v in the end, %+v at first", e.world.settings, before)
	}
	e.Shutdown(limit)
	rows := strings.Split(strings.TrimSpace(file.String()), "\n")
	if len(rows) < 3 || rows[len(rows)-1] != rows[1] {
		t.Errorf("the last row is not that of the defaults:\n%s", file.String())
	}
}

func TestNothingToTune(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no error although everything is fixed")
		}
	}()
	makeWorld(fatal{}, 1, true,
		func(o *Options) { o.Tune = &TuneOptions{Points: 3, Fixed: func(string) bool { return true }} })
}

type fatal struct{}

func (fatal) Fatal(a ...any) { panic(fmt.Sprint(a...)) }

// TestTunables: values survive the way through the log, and impossible values are refused.
func TestTunables(t *testing.T) {
	o := Options{FusionThreshold: 128 << 20}
	for _, kind := range []struct {
		shared, hosts bool
		early, room   int
	}{{true, false, 0, 0}, {false, false, 0, 0}, {false, true, 0, 0}, {false, true, 4096, 65536},
		{false, true, 32, 512}, {false, true, 8, 8}, {false, true, 0, 512}} {
		base := o.settings()
		base.early = kind.early
		tuned := false
		for _, p := range tunables(base, kind.shared, kind.hosts, kind.room, nil) {
			tuned = tuned || p.Name == "early_bytes"
			for _, v := range []float64{p.Low, p.High, p.Default} {
				s := base
				p.set(&s, v)
				got, err := decodeSettings(s.encode())
				if err != nil || got != s {
					t.Errorf("%s=%v: %+v becomes %+v (%v)", p.Name, v, s, got, err)
				}
				if v == p.Default && s != base {
					t.Errorf("%s: its default changes %+v to %+v", p.Name, base, s)
				}
			}
			if _, err := autotune.NewSearch(autotune.Options{Params: []autotune.Param{p.Param}}); err != nil {
				t.Error(err)
			}
		}
		if tuned != (kind.room > leastEarly && kind.early > 0) {
			t.Errorf("%+v: early_bytes is tuned: %v", kind, tuned)
		}
	}
	for _, bad := range [][]int64{nil, {1}, {1, 2, 3, 4, 5, 6, -7}, {1 << 60, 0, 0, 0, 0, 0, 0}} {
		if _, err := decodeSettings(bad); err == nil {
			t.Errorf("%v are settings", bad)
		}
	}
}
