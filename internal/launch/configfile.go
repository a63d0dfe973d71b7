package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configFile is upstream's YAML of settings. What is not there is nil.
type configFile struct {
	Controller *string `yaml:"controller"`
	Params     struct {
		FusionThresholdMB     *int     `yaml:"fusion_threshold_mb"`
		CycleTimeMS           *float64 `yaml:"cycle_time_ms"`
		CacheCapacity         *int     `yaml:"cache_capacity"`
		HierarchicalAllreduce *bool    `yaml:"hierarchical_allreduce"`
		HierarchicalAllgather *bool    `yaml:"hierarchical_allgather"`
		TorusAllreduce        *bool    `yaml:"torus_allreduce"`
	} `yaml:"params"`
	Autotune struct {
		Enabled              *bool    `yaml:"enabled"`
		LogFile              string   `yaml:"log_file"`
		WarmupSamples        *int     `yaml:"warmup_samples"`
		StepsPerSample       *int     `yaml:"steps_per_sample"`
		BayesOptMaxSamples   *int     `yaml:"bayes_opt_max_samples"`
		GaussianProcessNoise *float64 `yaml:"gaussian_process_noise"`
	} `yaml:"autotune"`
	Timeline struct {
		Filename   string `yaml:"filename"`
		MarkCycles *bool  `yaml:"mark_cycles"`
	} `yaml:"timeline"`
	StallCheck struct {
		Enabled             *bool `yaml:"enabled"`
		WarningTimeSeconds  *int  `yaml:"warning_time_seconds"`
		ShutdownTimeSeconds *int  `yaml:"shutdown_time_seconds"`
	} `yaml:"stall_check"`
	LibraryOptions struct {
		MPIThreadsDisable  *bool `yaml:"mpi_threads_disable"`
		NumNCCLStreams     *int  `yaml:"num_nccl_streams"`
		ThreadAffinity     *int  `yaml:"thread_affinity"`
		GlooTimeoutSeconds *int  `yaml:"gloo_timeout_seconds"`
	} `yaml:"library_options"`
	Logging struct {
		Level         string `yaml:"level"`
		WithTimestamp *bool  `yaml:"with_timestamp"`
	} `yaml:"logging"`
}

// readConfig fills in, from a file, what no option has said.
func (f *flags) readConfig(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c configFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true) // a setting that is misspelt would be lost
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	fill(&f.FusionThresholdMB, c.Params.FusionThresholdMB)
	fill(&f.CycleTimeMS, c.Params.CycleTimeMS)
	fill(&f.CacheCapacity, c.Params.CacheCapacity)
	fill(&f.HierarchicalAllreduce, c.Params.HierarchicalAllreduce)
	fill(&f.HierarchicalAllgather, c.Params.HierarchicalAllgather)
	fill(&f.TorusAllreduce, c.Params.TorusAllreduce)
	fill(&f.Autotune, c.Autotune.Enabled)
	fillText(&f.AutotuneLogFile, c.Autotune.LogFile)
	fill(&f.AutotuneWarmupSamples, c.Autotune.WarmupSamples)
	fill(&f.AutotuneStepsPerSample, c.Autotune.StepsPerSample)
	fill(&f.AutotuneBayesOptMaxSamples, c.Autotune.BayesOptMaxSamples)
	fill(&f.AutotuneGaussianProcessNoise, c.Autotune.GaussianProcessNoise)
	fillText(&f.TimelineFilename, c.Timeline.Filename)
	fill(&f.TimelineMarkCycles, c.Timeline.MarkCycles)
	fill(&f.StallCheck, c.StallCheck.Enabled)
	fill(&f.StallCheckWarningTimeSeconds, c.StallCheck.WarningTimeSeconds)
	fill(&f.StallCheckShutdownTimeSeconds, c.StallCheck.ShutdownTimeSeconds)
	fill(&f.MPIThreadsDisable, c.LibraryOptions.MPIThreadsDisable)
	fill(&f.NumNCCLStreams, c.LibraryOptions.NumNCCLStreams)
	fill(&f.ThreadAffinity, c.LibraryOptions.ThreadAffinity)
	fill(&f.GlooTimeoutSeconds, c.LibraryOptions.GlooTimeoutSeconds)
	fillText(&f.LogLevel, strings.ToUpper(c.Logging.Level))
	fill(&f.LogTime, c.Logging.WithTimestamp)
	if c.Controller == nil || f.Gloo || f.MPI {
		return nil
	}
	switch strings.ToLower(*c.Controller) {
	case "gloo":
		f.Gloo = true
	case "mpi":
		f.MPI = true
	default:
		return fmt.Errorf("%s: controller: %s: gloo or mpi is needed", path, *c.Controller)
	}
	return nil
}

// fill sets an option that was not given.
func fill[T any](option **T, setting *T) {
	if *option == nil {
		*option = setting
	}
}

func fillText(option *string, setting string) {
	if *option == "" {
		*option = setting
	}
}
