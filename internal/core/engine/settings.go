package engine

import (
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/core/autotune"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// settings are the parameters that may change while a lane runs. A record of the lane's log changes them, so for every
// operation all members have the same settings.
type settings struct {
	fusionThreshold int64
	cycleTime       time.Duration
	data            collective.Tuning
	early           int // how many bytes of this rank's operands may travel ahead of agreement at a time; see early.go
}

func (o *Options) settings() settings {
	return settings{fusionThreshold: o.FusionThreshold, cycleTime: o.CycleTime, data: collective.DefaultTuning}
}

// encode is the inverse of decodeSettings.
func (s *settings) encode() []int64 {
	flat := int64(0)
	if s.data.Flat {
		flat = 1
	}
	return []int64{s.fusionThreshold, int64(s.cycleTime), int64(s.data.Chunk), int64(s.data.Piece),
		int64(s.data.Message), int64(s.data.Rate), flat, int64(s.early)}
}

func decodeSettings(v []int64) (s settings, err error) {
	const most = 1 << 40 // far beyond any sensible value, far below an overflow
	if len(v) != len(s.encode()) {
		return s, fmt.Errorf("%d settings, expected %d", len(v), len(s.encode()))
	}
	for _, n := range v {
		if n < 0 || n > most {
			return s, fmt.Errorf("setting %d is out of range", n)
		}
	}
	return settings{fusionThreshold: v[0], cycleTime: time.Duration(v[1]), data: collective.Tuning{
		Chunk: int(v[2]), Piece: int(v[3]), Message: int(v[4]), Rate: int(v[5]), Flat: v[6] != 0},
		early: int(v[7])}, nil
}

// leastEarly is the least that a search tries for settings.early: a few numbers. To send these with a mark costs no
// more than the mark.
const leastEarly = 16

// tunable is a setting that a search may change.
type tunable struct {
	autotune.Param
	set func(s *settings, v float64)
}

// tunables lists the settings that matter for a lane over the given kind of data path, with their defaults from s.
// hosts says that the lane's allreduces can be hierarchical or flat. early is the most that settings.early can be.
// Settings that the user has fixed are left out.
func tunables(s settings, shared, hosts bool, early int, fixed func(name string) bool) []tunable {
	const mib, kib = 1 << 20, 1 << 10
	all := []tunable{
		{autotune.Param{Name: "tensor_fusion_threshold", Low: 0.25, High: 256, Log: true,
			Default: float64(s.fusionThreshold) / mib},
			func(s *settings, v float64) { s.fusionThreshold = int64(v * mib) }},
		{autotune.Param{Name: "cycle_time_ms", Low: 0, High: 5, Default: float64(s.cycleTime) / float64(
			time.Millisecond)},
			func(s *settings, v float64) { s.cycleTime = time.Duration(v * float64(time.Millisecond)) }},
	}
	if shared {
		all = append(all, tunable{autotune.Param{Name: "chunk_kb", Low: 64, High: 512, Log: true, Whole: true,
			Default: float64(s.data.Chunk) / kib}, func(s *settings, v float64) { s.data.Chunk = int(v) * kib }})
	} else {
		all = append(all, tunable{autotune.Param{Name: "piece_kb", Low: 32, High: 4096, Log: true, Whole: true,
			Default: float64(s.data.Piece) / kib}, func(s *settings, v float64) { s.data.Piece = int(v) * kib }},
			tunable{autotune.Param{Name: "message_kb", Low: 2, High: 512, Log: true, Whole: true,
				Default: float64(s.data.Message) / kib},
				func(s *settings, v float64) { s.data.Message = int(v) * kib }})
	}
	if hosts {
		hierarchical := 1.0
		if s.data.Flat {
			hierarchical = 0
		}
		all = append(all, tunable{autotune.Param{Name: "hierarchical_allreduce", Low: 0, High: 1, Whole: true,
			Default: hierarchical}, func(s *settings, v float64) { s.data.Flat = v < 0.5 }})
	}
	if s.early > 0 && early > leastEarly {
		all = append(all, tunable{autotune.Param{Name: "early_bytes", Low: leastEarly, High: float64(early), Log: true,
			Whole: true, Default: float64(s.early)}, func(s *settings, v float64) { s.early = int(v) }})
	}
	free := all[:0]
	for _, t := range all {
		if fixed == nil || !fixed(t.Name) {
			t.Low, t.High = min(t.Low, t.Default), max(t.High, t.Default)
			free = append(free, t)
		}
	}
	return free
}
