package flags

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	parse := func(text string, options ...string) (*Flags, error) {
		os.WriteFile(path, []byte(text), 0o600)
		return Parse("horovodrun", append(append([]string{"-np", "1", "--config-file", path}, options...), "x"))
	}
	const all = `
controller: GLOO
params: {fusion_threshold_mb: 5, cycle_time_ms: 2.5, cache_capacity: 7, hierarchical_allreduce: true, hierarchical_allgather: false, torus_allreduce: false}
autotune:
  enabled: true
  log_file: f
  warmup_samples: 1
  steps_per_sample: 2
  bayes_opt_max_samples: 3
  gaussian_process_noise: 0.5
timeline: {filename: t, mark_cycles: true}
stall_check:
  enabled: false   # reported elsewhere
  warning_time_seconds: 8
  shutdown_time_seconds: 9
library_options: {mpi_threads_disable: true, num_nccl_streams: 2, thread_affinity: 0, gloo_timeout_seconds: 11}
logging: {level: debug, with_timestamp: false}
metrics-port: 9400
dashboard: "[::1]:9500"
`
	f, err := parse(all, "--cache-capacity", "99", "--no-hierarchical-allreduce")
	if err != nil {
		t.Fatal(err)
	}
	got := f.tune(nil)
	slices.Sort(got)
	want := strings.Fields(
		`HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=3 HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.5 HOROVOD_AUTOTUNE_LOG=f
		HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=2 HOROVOD_AUTOTUNE_WARMUP_SAMPLES=1 HOROVOD_CACHE_CAPACITY=99 HOROVOD_CYCLE_TIME=2.5 HOROVOD_FUSION_THRESHOLD=5242880
		HOROVOD_GLOO_TIMEOUT_SECONDS=11 HOROVOD_HIERARCHICAL_ALLGATHER=0 HOROVOD_HIERARCHICAL_ALLREDUCE=0 HOROVOD_LOG_HIDE_TIME=1 HOROVOD_LOG_LEVEL=DEBUG
		HOROVOD_MPI_THREADS_DISABLE=1 HOROVOD_NUM_NCCL_STREAMS=2 HOROVOD_STALL_CHECK_DISABLE=1 HOROVOD_STALL_CHECK_TIME_SECONDS=8
		HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9 HOROVOD_THREAD_AFFINITY=0 HOROVOD_TIMELINE=t HOROVOD_TIMELINE_MARK_CYCLES=1 HOROVOD_TORUS_ALLREDUCE=0`)
	if !slices.Equal(got, want) || !f.Gloo {
		t.Errorf("got %q,\nwant %q", got, want)
	}
	if f.MetricsPort != "9400" || f.Dashboard != "[::1]:9500" || len(f.Warnings) > 0 {
		t.Errorf("%q, %q, %q", f.MetricsPort, f.Dashboard, f.Warnings)
	}
	if f, err = parse(all, "--dashboard"); err != nil || f.Dashboard != AnyPort {
		t.Errorf("%q, %v", f.Dashboard, err)
	}
	for text, says := range map[string]string{
		"params: {cache_capacity: many}":         "many",
		"controller: smoke":                      "gloo or mpi",
		"params: [":                              path,
		"stall_check: {warning_time_seconds: 0}": "--stall-check-warning-time-seconds 0",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := parse("# nothing\n"); err != nil {
		t.Error(err)
	}
	if _, err := Parse("horovodrun", []string{"-np", "1", "--config-file", "/no/such", "x"}); err == nil ||
		!strings.Contains(err.Error(), "--config-file") {
		t.Error(err)
	}
}

// Messages about mistakes in a file use the file's own words.
func TestConfigFileMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"params:\n  cache_capacity: many\n": `line 2: params.cache_capacity: a whole number is needed, not "many"`,
		"params:\n  cache_capacity: 1.5\n":  `line 2: params.cache_capacity: a whole number is needed, not "1.5"`,
		"autotune:\n  enabled: 7\n":         `line 2: autotune.enabled: true or false is needed, not "7"`,
		"timeline:\n  filename: [a]\n":      "line 2: timeline.filename: a text is needed, not a list",
		"params: 3\n":                       `line 1: params: settings with their names are needed, not "3"`,
		"- a\n":                             "line 1: the file: settings with their names are needed, not a list",
		"params: [":                         "yaml",
		"controller: ib\n":                  "controller: ib: gloo or mpi is needed",
		"":                                  "",
		"# nothing\n":                       "",
		"params:\n":                         "",
		"params: {cache_capacity: ~}\n":     "",
		"controller: mpi\nparams: {cycle_time_ms: 1}": "",
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var f Flags
		err := f.readConfig(file)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "struct")) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		if strings.HasPrefix(text, "controller: mpi") && (!f.MPI || f.CycleTimeMS == nil) {
			t.Errorf("%q: not taken over: %+v", text, f)
		}
	}
}

// The launcher warns of an unknown key and uses the other keys.
func TestUnknownKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "nonsense:\n  a: 1\nparams:\n  fusion_treshold_mb: 3\n  cache_capacity: 7\n  red: 1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Parse("horovodrun", []string{"-np", "1", "--config-file", file, "x"})
	if err != nil {
		t.Fatal(err)
	}
	at := "--config-file: " + file + ": "
	want := []string{at + "line 1: unknown key nonsense is ignored",
		at + "line 4: unknown key params.fusion_treshold_mb is ignored, did you mean fusion_threshold_mb?",
		at + "line 6: unknown key params.red is ignored"}
	if !slices.Equal(f.Warnings, want) || *f.CacheCapacity != 7 {
		t.Errorf("%q, %+v", f.Warnings, f)
	}
}

// A file of settings is read or refused, whatever bytes it has.
func FuzzConfigFile(f *testing.F) {
	f.Add("controller: gloo\nparams:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 1.5\ntimeline:\n  filename: t\n")
	f.Add("params: &a\n  cache_capacity: 99999999999999999999\n")
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n")
	f.Add("logging:\n  level: info\n  with_timestamp: yes\nstall_check: {enabled: false, warning_time_seconds: -1}\n")
	f.Add("--- 1\n--- {}\n\t")
	path := filepath.Join(f.TempDir(), "settings.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := Parse("horovodrun", []string{"-np", "2", "--config-file", path, "true"}); err == nil {
			f.tune(f.Environ(nil))
		}
	})
}
