package flags

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/base/spelling"
)

// configFile is Horovod's YAML file of settings, and the addresses at which the job is shown. A missing setting is nil
// or empty.
type configFile struct {
	Controller  *string `yaml:"controller"`
	MetricsPort string  `yaml:"metrics-port"`
	Dashboard   string  `yaml:"dashboard"`
	Params      struct {
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

// readConfig sets, from a file, the options that were not given.
func (f *Flags) readConfig(path string) error {
	text, err := readSettings(path)
	if err != nil {
		return err
	}
	var c configFile
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	unknown, err := checkKeys(&document, reflect.TypeOf(c), "")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, u := range unknown {
		f.Warnings = append(f.Warnings, fmt.Sprintf("--config-file: %s: %s", path, u))
	}
	if err := document.Decode(&c); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fillText(&f.MetricsPort, c.MetricsPort)
	fillText(&f.Dashboard, c.Dashboard)
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

// checkKeys refuses a value that type t cannot hold, for example a fraction for a whole number. The error names the
// key and the line. unknown are the keys that nothing reads, which Horovod ignores silently.
func checkKeys(node *yaml.Node, t reflect.Type, key string) (unknown []string, err error) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node.Kind == 0 || node.Tag == "!!null":
		return nil, nil
	case node.Kind == yaml.DocumentNode:
		return checkKeys(node.Content[0], t, key)
	case t.Kind() != reflect.Struct:
		if node.Decode(reflect.New(t).Interface()) != nil || baseOf(t).Kind() == reflect.Int && node.Tag != "!!int" {
			return nil, fmt.Errorf("line %d: %s: %s is needed, not %s", node.Line, key, kindNames[baseOf(t).Kind()],
				written(node))
		}
		return nil, nil
	case node.Kind != yaml.MappingNode:
		if key == "" {
			key = "the file"
		}
		return nil, fmt.Errorf("line %d: %s: settings with their names are needed, not %s", node.Line, key,
			written(node))
	}
	known := make(map[string]reflect.Type)
	for i := range t.NumField() {
		known[t.Field(i).Tag.Get("yaml")] = t.Field(i).Type
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		full := strings.TrimPrefix(key+"."+name.Value, ".")
		inner, ok := known[name.Value]
		if !ok {
			advice := spelling.DidYouMean(name.Value, slices.Sorted(maps.Keys(known)))
			unknown = append(unknown, fmt.Sprintf("line %d: unknown key %s is ignored%s", name.Line,
				printable.Short(full), advice))
			continue
		}
		more, err := checkKeys(value, inner, full)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, more...)
	}
	return unknown, nil
}

// kindNames describe the types of settings in messages.
var kindNames = map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Float64: "a number",
	reflect.Bool: "true or false", reflect.String: "a text"}

func baseOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// written is a node as a message shows it.
func written(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "settings of its own"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(printable.Short(node.Value))
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
