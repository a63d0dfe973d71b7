package world

import (
	"fmt"
	"os"

	"github.com/gorovod/gorovod/internal/core/engine"
)

// tune starts autotuning on rank 0 if the configuration asks for it.
func (w *World) tune(o *engine.Options) error {
	c := w.Config
	if !c.Autotune.On || w.Place.Rank != 0 {
		return nil
	}
	t := &engine.TuneOptions{Warmup: c.Autotune.Warmup, Steps: c.Autotune.Steps, Points: c.Autotune.Points,
		Noise: c.Autotune.Noise}
	t.Fixed = func(name string) bool {
		switch name {
		case "tensor_fusion_threshold":
			return c.IsSet("HOROVOD_FUSION_THRESHOLD")
		case "cycle_time_ms":
			return c.IsSet("HOROVOD_CYCLE_TIME")
		case "early_bytes":
			return c.IsSet("GOROVOD_EARLY_BYTES")
		case "hierarchical_allreduce":
			return c.IsSet("HOROVOD_HIERARCHICAL_ALLREDUCE") || c.IsSet("HOROVOD_TORUS_ALLREDUCE")
		}
		return false
	}
	if c.Autotune.Log != "" {
		file, err := os.Create(c.Autotune.Log)
		if err != nil {
			return fmt.Errorf("HOROVOD_AUTOTUNE_LOG: %w", err)
		}
		t.Log = file
	}
	o.Tune = t
	return nil
}
