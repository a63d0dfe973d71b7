package config

import (
	"strings"
	"testing"
)

// hisVariables are all variables that Horovod's documentation and sources name.
const hisVariables = `
HOROVOD_FUSION_THRESHOLD HOROVOD_CYCLE_TIME HOROVOD_CACHE_CAPACITY HOROVOD_HIERARCHICAL_ALLREDUCE HOROVOD_HIERARCHICAL_ALLGATHER
HOROVOD_TORUS_ALLREDUCE HOROVOD_AUTOTUNE HOROVOD_AUTOTUNE_LOG HOROVOD_AUTOTUNE_WARMUP_SAMPLES HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE HOROVOD_TIMELINE HOROVOD_TIMELINE_MARK_CYCLES
HOROVOD_STALL_CHECK_DISABLE HOROVOD_STALL_CHECK_TIME_SECONDS HOROVOD_STALL_SHUTDOWN_TIME_SECONDS HOROVOD_LOG_LEVEL
HOROVOD_LOG_HIDE_TIME HOROVOD_THREAD_AFFINITY HOROVOD_NUM_NCCL_STREAMS HOROVOD_BATCH_D2D_MEMCOPIES HOROVOD_DISABLE_GROUP_FUSION
HOROVOD_DISABLE_NVTX_RANGES HOROVOD_ENABLE_ASYNC_COMPLETION HOROVOD_ENABLE_XLA_OPS HOROVOD_DYNAMIC_PROCESS_SETS HOROVOD_ELASTIC
HOROVOD_CONTROLLER HOROVOD_CPU_OPERATIONS HOROVOD_MPI_THREADS_DISABLE HOROVOD_ADASUM_MPI_CHUNK_SIZE HOROVOD_CCL_CACHE DDL_OPTIONS

HOROVOD_GLOO_TIMEOUT_SECONDS HOROVOD_GLOO_IFACE HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_HOSTNAME
HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE
OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE

HOROVOD_START_TIMEOUT HOROVOD_ELASTIC_TIMEOUT HOROVOD_SPARK_START_TIMEOUT HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX
HOROVOD_SPARK_PYTHONPATH HOROVOD_SPARK_WORK_DIR _HOROVOD_SECRET_KEY NCCL_IB_DISABLE NCCL_SOCKET_IFNAME
DATABRICKS_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS DATABRICKS_FILE_AVAILABILITY_CHECK_INTERVAL_SECS

HOROVOD_DEBUG HOROVOD_BUILD_ARCH_FLAGS HOROVOD_BUILD_CUDA_CC_LIST HOROVOD_CUDA_HOME HOROVOD_ROCM_HOME HOROVOD_NCCL_HOME
HOROVOD_NCCL_INCLUDE HOROVOD_NCCL_LIB HOROVOD_NCCL_LINK HOROVOD_NVTX_INCLUDE HOROVOD_WITH_GLOO HOROVOD_WITH_MPI
HOROVOD_WITH_TENSORFLOW HOROVOD_WITH_PYTORCH HOROVOD_WITH_MXNET HOROVOD_WITHOUT_GLOO HOROVOD_WITHOUT_MPI HOROVOD_WITHOUT_TENSORFLOW
HOROVOD_WITHOUT_PYTORCH HOROVOD_WITHOUT_MXNET HOROVOD_WITHOUT_NVTX HOROVOD_GPU HOROVOD_GPU_OPERATIONS HOROVOD_GPU_ALLREDUCE
HOROVOD_GPU_ALLGATHER HOROVOD_GPU_BROADCAST HOROVOD_GPU_ALLTOALL HOROVOD_GPU_REDUCESCATTER HOROVOD_ALLOW_MIXED_GPU_IMPL
HOROVOD_CMAKE HOROVOD_SKIP_COMPILE HOROVOD_LOCAL_VERSION HOROVOD_MIXED_INSTALL HOROVOD_TEST_GPU MAKEFLAGS CCL_ROOT`

func TestEveryVariableOfHorovodIsInTheTable(t *testing.T) {
	his := make(map[string]bool)
	for _, name := range strings.Fields(hisVariables) {
		his[name] = true
	}
	seen := make(map[string]bool)
	for _, k := range Knobs {
		if seen[k.Name] {
			t.Errorf("%s is in the table twice", k.Name)
		}
		seen[k.Name] = true
		if !his[k.Name] && !strings.HasPrefix(k.Name, "GOROVOD_") && k.Name != "HOROVOD_SECRET_KEY" {
			t.Errorf("%s is neither Horovod's nor named as our own", k.Name)
		}
	}
	for name := range his {
		if !seen[name] {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// A wish for GPUs that cannot be met is an error.
func TestGPU(t *testing.T) {
	for value, want := range map[string]string{
		"auto": "", "staged": "", "nccl": "", "off": "",
		"NCCL": "auto, nccl, staged or off is needed", "1": "auto, nccl, staged or off is needed",
	} {
		c, err := Load(env("GOROVOD_GPU", value))
		switch {
		case want == "" && (err != nil || c.GPU != GPU(value)):
			t.Errorf("%s: %v", value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, not %q", value, err, want)
		}
	}
	if c, err := Load(env()); err != nil || c.GPU != GPUAuto {
		t.Errorf("without it: %v", err)
	}
}

// Each class keeps its promise, and every knob says why it is there.
func TestClasses(t *testing.T) {
	backends := []string{"ccl", "nccl", "ddl"}
	for _, k := range Knobs {
		if k.Doc == "" {
			t.Errorf("%s says nothing", k.Name)
		}
		switch k.Class {
		case Implemented:
			if k.By == "" && k.parse == nil {
				t.Errorf("%s: nobody reads it", k.Name)
			}
		case Meaningless:
			if k.show != nil || k.Agreed {
				t.Errorf("%s has a field though it has no effect", k.Name)
			}
		case Refused:
			allowed := false
			for _, b := range backends {
				allowed = allowed || strings.Contains(strings.ToLower(k.Name), b)
			}
			if !allowed {
				t.Errorf("%s: only what belongs to oneCCL, DDL and NCCL may be refused", k.Name)
			}
		}
		if k.Agreed && (k.parse == nil || k.show == nil) {
			t.Errorf("%s cannot be told to other ranks", k.Name)
		}
	}
}

// A variable that is accepted as meaningless changes nothing. One that a program may rely on says so.
func TestMeaninglessVariablesAreAccepted(t *testing.T) {
	var all []string
	for _, k := range Knobs {
		if k.Class == Meaningless {
			all = append(all, k.Name, "1")
		}
	}
	c, err := Load(env(all...))
	const told = "HOROVOD_ENABLE_XLA_OPS=1: there are no XLA operations, so this has no effect"
	if err != nil || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], told) {
		t.Errorf("error %v, %+v", err, c)
	}
}

// show is parse's inverse, for defaults and for values that are read back.
func TestShowIsTheInverseOfParse(t *testing.T) {
	samples := map[string][]string{
		"HOROVOD_FUSION_THRESHOLD":                {"0", "1", "9223372036854775807"},
		"HOROVOD_CYCLE_TIME":                      {"0", "0.001", "2.5", "59999.999999"},
		"HOROVOD_GLOO_TIMEOUT_SECONDS":            {"0.000000001", "1000000", "33.3"},
		"HOROVOD_STALL_CHECK_TIME_SECONDS":        {"0.1", "999999.999999999"},
		"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS":     {"0", "77.7"},
		"HOROVOD_LOG_LEVEL":                       {"debug", "info", "warning", "error"},
		"HOROVOD_TIMELINE":                        {TimelineDynamic, "/tmp/a b"},
		"GOROVOD_TRANSPORT":                       {"auto", "shm", "tcp"},
		"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": {"0", "1", "0.8"},
		"HOROVOD_AUTOTUNE_WARMUP_SAMPLES":         {"0", "7"},
	}
	for _, k := range Knobs {
		if k.show == nil {
			continue
		}
		values := samples[k.Name]
		if d := k.Default(); d != "" {
			values = append(values, d)
		}
		for _, v := range values {
			c := defaults()
			if err := k.parse(c, v); err != nil || k.show(c) != v {
				t.Errorf("%s=%s: error %v, shown as %s", k.Name, v, err, k.show(c))
			}
		}
	}
}

func TestSettings(t *testing.T) {
	c := Read(env("HOROVOD_CYCLE_TIME", "2.50", "HOROVOD_RANK", "a\tb", "HOROVOD_SECRET_KEY", testKey,
		"_HOROVOD_SECRET_KEY", "s3cret", "HOROVOD_NUM_NCCL_STREAMS", "4", "HOROVOD_HOSTNAME", "h\n"))
	if _, err := c.Adopt(map[string]string{"HOROVOD_CACHE_CAPACITY": "9"}); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]Setting)
	for _, s := range c.Settings() {
		got[s.Name] = s
	}
	if len(got) != len(Knobs) {
		t.Errorf("%d settings, %d knobs", len(got), len(Knobs))
	}
	for name, want := range map[string]struct {
		value  string
		origin Origin
		err    bool
	}{
		"HOROVOD_CYCLE_TIME":       {"2.5", FromEnvironment, false},
		"HOROVOD_RANK":             {`"a\tb"`, FromEnvironment, true},
		"HOROVOD_SECRET_KEY":       {"set", FromEnvironment, false},
		"_HOROVOD_SECRET_KEY":      {"set", FromEnvironment, false},
		"HOROVOD_NUM_NCCL_STREAMS": {"4", FromEnvironment, false},
		"HOROVOD_HOSTNAME":         {`"h\n"`, FromEnvironment, false},
		"HOROVOD_CACHE_CAPACITY":   {"9", FromRankZero, false},
		"HOROVOD_TIMELINE":         {"", FromDefault, false},
		"HOROVOD_FUSION_THRESHOLD": {"134217728", FromDefault, false},
		"HOROVOD_CCL_CACHE":        {"", FromDefault, false},
		"HOROVOD_CONTROLLER":       {"gloo", FromDefault, false},
		"HOROVOD_START_TIMEOUT":    {"", FromDefault, false},
	} {
		if s := got[name]; s.Value != want.value || s.Origin != want.origin || (s.Err != nil) != want.err {
			t.Errorf("%s: %q from %v, error %v", name, s.Value, s.Origin, s.Err)
		}
	}
}
