package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

//go:generate go test -run TestDocs -update

// Knobs is the table of all variables of gorovod and of Horovod.
var Knobs = slices.Concat(implemented, foreign)

// implemented are the knobs that have an effect.
var implemented = []Knob{
	{Name: "HOROVOD_FUSION_THRESHOLD", Agreed: true, Doc: "how many bytes of small tensors travel together; 0: each " +
		"tensor travels alone",
		setting: size(func(c *Config) *int64 { return &c.FusionThreshold })},
	{Name: "HOROVOD_CYCLE_TIME", Agreed: true, Doc: "milliseconds, 0 to 60000, for which a small tensor that is " +
		"ready waits for others to travel with it; 0: it does not wait. Horovod's default is 1",
		setting: duration(func(c *Config) *time.Duration { return &c.CycleTime }, time.Millisecond, 60000, true,
			"a number of milliseconds from 0 to 60000")},
	{Name: "HOROVOD_DISABLE_GROUP_FUSION", Agreed: true, Doc: "1: the tensors of a group travel only with one another",
		setting: boolean(func(c *Config) *bool { return &c.DisableGroupFusion })},
	{Name: "HOROVOD_CACHE_CAPACITY", Agreed: true, Doc: "how many tensors of each process set are remembered, up to " +
		"65536; 0: none. A remembered tensor needs no message in its next round",
		setting: whole(func(c *Config) *int { return &c.CacheCapacity }, 0, MaxCacheCapacity)},
	{Name: "GOROVOD_EARLY_BYTES", Agreed: true, Doc: "how many bytes of a rank's small tensors travel between hosts " +
		"together with the news that they are ready, at most 65536; 0: none do",
		setting: whole(func(c *Config) *int { return &c.EarlyBytes }, 0, MaxEarlyBytes)},
	{Name: "GOROVOD_MEASURE_LINKS", Agreed: true, Doc: "1: ranks on several hosts measure their connections when " +
		"they meet, and choose between the algorithms for allreduces by what they find; 0: they choose as on a fast " +
		"network",
		setting: boolean(func(c *Config) *bool { return &c.MeasureLinks })},
	{Name: "HOROVOD_DYNAMIC_PROCESS_SETS", Agreed: true, Doc: "1: the program may add and remove process sets after " +
		"`hvd.init()`",
		setting: boolean(func(c *Config) *bool { return &c.DynamicSets })},
	{Name: "GOROVOD_JOIN_ALL_OPS", Agreed: true, Doc: "1: a joined rank takes part in allgather, broadcast, alltoall " +
		"and reducescatter with an empty part; 0: these operations fail then, as in Horovod",
		setting: boolean(func(c *Config) *bool { return &c.JoinAllOps })},
	{Name: "GOROVOD_COMPRESSION", Agreed: true, Doc: "`fp16`, `bf16`, `int8` or `fp8`: float sums and averages " +
		"travel between hosts in 16 or 8 bits a number; `none`: only where `hvd.Compression` asks for it",
		setting: setting{
			parse: func(c *Config, v string) (err error) {
				c.Compression, err = tensor.ParseWire(v)
				return err
			},
			show: func(c *Config) string { return c.Compression.String() },
		}},
	{Name: "GOROVOD_TRANSPORT", Agreed: true, Doc: "`shm`: shared memory, on one host only; `tcp`; `auto`: shared " +
		"memory where all ranks can map it, TCP elsewhere",
		setting: setting{
			parse: func(c *Config, v string) error {
				switch v {
				case "auto", "shm", "tcp":
					c.Transport = v
					return nil
				}
				return fmt.Errorf("auto, shm or tcp is needed")
			},
			show: func(c *Config) string { return c.Transport },
		}},
	{Name: "GOROVOD_GPU", Agreed: true, Doc: "how tensors of PyTorch and JAX on GPUs travel. `nccl`: by NCCL, else " +
		"an error; `staged`: copied through host memory; `auto`: by NCCL if all ranks can, else staged; `off`: refused",
		setting: setting{parse: parseGPU, show: func(c *Config) string { return string(c.GPU) }}},
	{Name: "HOROVOD_ENABLE_ASYNC_COMPLETION", Doc: "1: an operation that NCCL carries ends when it is in the " +
		"GPU's stream, and the current stream waits for the result; 0: it ends when the result is there",
		setting: boolean(func(c *Config) *bool { return &c.AsyncCompletion })},
	{Name: "GOROVOD_SINGLE_COPY", Agreed: true, Doc: "1: ranks of a host read and write one another's large tensors " +
		"in place, where that is possible and faster; 0: all data passes through the shared segment",
		setting: boolean(func(c *Config) *bool { return &c.SingleCopy })},
	{Name: "GOROVOD_HUGE_PAGES", Doc: "1: tensors that other ranks reach in place again and again move into huge " +
		"pages; 0: they stay in the pages where they are",
		setting: boolean(func(c *Config) *bool { return &c.HugePages })},
	{Name: "HOROVOD_AUTOTUNE", Agreed: true, Doc: "1: rank 0 searches for faster settings of allreduce while the job " +
		"runs; 0: the settings stay as they are",
		setting: boolean(func(c *Config) *bool { return &c.Autotune.On })},
	{Name: "HOROVOD_AUTOTUNE_LOG", Doc: "CSV file to which rank 0 writes what it has tried since the last " +
		"elastic reset",
		setting: text(func(c *Config) *string { return &c.Autotune.Log })},
	{Name: "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", Doc: "how many measurements at the start do not count",
		setting: whole(func(c *Config) *int { return &c.Autotune.Warmup }, 0, 1e6)},
	{Name: "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", Doc: "steps that make a sample; five samples make a measurement",
		setting: whole(func(c *Config) *int { return &c.Autotune.Steps }, 1, 1e6)},
	{Name: "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", Doc: "how many measurements the search may make. Rank 0 " +
		"computes longer for each further one: 0.1 s after 50, 0.2 s after 100",
		setting: whole(func(c *Config) *int { return &c.Autotune.Points }, 1, 1000)},
	{Name: "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", Doc: "how much measurements scatter beyond what the search " +
		"sees: a variance in (bytes/µs)², from 0 to 1",
		setting: fraction(func(c *Config) *float64 { return &c.Autotune.Noise })},
	{Name: "GOROVOD_TLS", Agreed: true, Doc: "1: TLS 1.3 encrypts all TCP connections; 0: they prove the job's " +
		"secret, and are neither encrypted nor signed",
		setting: protection(func(c *Config) *bool { return &c.TLS })},
	{Name: auth.CertVariable, Doc: "a file (PEM) with the certificate that this process presents under TLS, and " +
		"those between it and the CA. Empty: one that it makes for itself",
		setting: text(func(c *Config) *string { return &c.Certificates.Cert })},
	{Name: auth.KeyVariable, Doc: "a file (PEM) with the certificate's key",
		setting: text(func(c *Config) *string { return &c.Certificates.Key })},
	{Name: auth.CAVariable, Doc: "a file (PEM) with the CAs that must have signed the other processes' certificates",
		setting: text(func(c *Config) *string { return &c.Certificates.CA })},
	{Name: "GOROVOD_TCP_STREAMS", Agreed: true, Doc: "TCP connections for the data from one rank to another, up to " +
		"64; 0: one for each equally fast network interface of a host",
		setting: whole(func(c *Config) *int { return &c.TCPStreams }, 0, 64)},
	{Name: "GOROVOD_KEEPALIVE_SECONDS", Agreed: true, Doc: "seconds after which the kernels exchange an empty packet " +
		"on an idle connection between ranks, so that no firewall forgets it; 0: never",
		setting: duration(func(c *Config) *time.Duration { return &c.KeepAlive }, time.Second, 32767, true,
			"0, or a number of seconds up to 32767,")},
	{Name: "HOROVOD_HIERARCHICAL_ALLREDUCE", Agreed: true, Doc: "for allreduce and reducescatter over several hosts. " +
		"`1`: inside the hosts first, then between them; `0`: not so; `auto`: as a model of the cost says",
		setting: hint(func(c *Config) *Hint { return &c.HierarchicalAllreduce })},
	{Name: "HOROVOD_HIERARCHICAL_ALLGATHER", Agreed: true, Doc: "the same for allgather, where the ranks of each " +
		"host have consecutive numbers",
		setting: hint(func(c *Config) *Hint { return &c.HierarchicalAllgather })},
	{Name: "HOROVOD_TORUS_ALLREDUCE", Agreed: true, Doc: "another name for HOROVOD_HIERARCHICAL_ALLREDUCE: if one of " +
		"the two is 1, both are",
		setting: hint(func(c *Config) *Hint { return &c.TorusAllreduce })},
	{Name: "GOROVOD_DETERMINISTIC", Agreed: true, Doc: "1: a run over several hosts repeats bit for bit; 0: the " +
		"fastest order counts. On one host the order is always that of the ranks",
		setting: boolean(func(c *Config) *bool { return &c.Deterministic })},
	{Name: "HOROVOD_CONTROLLER", Doc: "how the ranks find one another. `gloo`: by the rendezvous that the " +
		"environment names; `mpi`: over MPI, which has started them",
		setting: backend(func(c *Config) *Backend { return &c.Controller }, nil)},
	{Name: "HOROVOD_CPU_OPERATIONS", Agreed: true, Doc: "what carries the data. `gloo`: gorovod's own transports; " +
		"`mpi`: MPI; `ccl` is refused: there is no oneCCL",
		setting: backend(func(c *Config) *Backend { return &c.CPUOperations },
			map[string]string{"ccl": "there is no oneCCL backend"})},
	{Name: "HOROVOD_MPI_THREADS_DISABLE", Doc: "1: MPI is initialised for one thread, and that thread makes all " +
		"calls; 0: for several, so that the program may call MPI, too",
		setting: boolean(func(c *Config) *bool { return &c.MPIThreadsDisable })},
	{Name: "GOROVOD_MPI_LIBRARY", Doc: "name or path of the libmpi to load; without it, gorovod looks for one",
		setting: text(func(c *Config) *string { return &c.MPILibrary })},
	{Name: "HOROVOD_GLOO_TIMEOUT_SECONDS", Doc: "seconds for which ranks wait for one another in `hvd.init()`. " +
		"Operations wait without limit: see the stall check",
		setting: duration(func(c *Config) *time.Duration { return &c.Timeout }, time.Second, 1e6, false,
			"a number of seconds above 0, up to 1000000,")},

	{Name: "GOROVOD_CHECKPOINT_DIR", Agreed: true, Doc: "directory into which rank 0 writes commits of an elastic " +
		"state. A job that starts again goes on from there. All hosts should see the same storage",
		setting: text(func(c *Config) *string { return &c.CheckpointDir })},
	{Name: "GOROVOD_CHECKPOINT_EVERY", Agreed: true, Doc: "rank 0 writes one of so many commits",
		setting: whole(func(c *Config) *int { return &c.CheckpointEvery }, 1, 1<<30)},

	{Name: "HOROVOD_STALL_CHECK_DISABLE", section: reports, Agreed: true, Doc: "1: no rank reports tensors that some " +
		"ranks wait for, and such tensors do not end the job",
		setting: boolean(func(c *Config) *bool { return &c.StallCheckDisable })},
	{Name: "HOROVOD_STALL_CHECK_TIME_SECONDS", section: reports, Agreed: true,
		Doc: "seconds until a tensor is reported that only some ranks have submitted, and from one report of it " +
			"to the next",
		setting: duration(func(c *Config) *time.Duration { return &c.StallCheckTime }, time.Second, 1e6,
			false, "a number of seconds above 0, up to 1000000 (HOROVOD_STALL_CHECK_DISABLE=1 turns the check off),")},
	{Name: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", section: reports, Agreed: true,
		Doc: "seconds until such a tensor ends the job; 0: never. A value below " +
			"HOROVOD_STALL_CHECK_TIME_SECONDS is ignored",
		setting: duration(func(c *Config) *time.Duration { return &c.StallShutdownTime }, time.Second, 1e6, true,
			"a number of seconds from 0 to 1000000")},
	{Name: "GOROVOD_DEADLOCK_ABORT", section: reports, Agreed: true, Doc: "1: ranks whose main threads wait for one " +
		"another end the job, with an error that names ranks and tensors; 0: the stall check only reports them",
		setting: boolean(func(c *Config) *bool { return &c.DeadlockAbort })},
	{Name: "GOROVOD_HEARTBEAT_SECONDS", section: reports, Agreed: true, Doc: "seconds of silence after which a rank " +
		"that others wait for counts as lost; at least 5, or 0: never. A rank that computes is not silent",
		setting: heartbeat},
	{Name: "GOROVOD_NAN_CHECK", section: reports, Agreed: true, Doc: "each rank looks for NaNs and infinities in " +
		"what it reduces. `1`, `warn`: it logs the tensor, once for each name; `abort`: it ends the job before any " +
		"rank has the result; `0`: no check",
		setting: setting{
			parse: func(c *Config, v string) (err error) {
				c.NaNCheck, err = operation.ParseNaNCheck(v)
				return err
			},
			show: func(c *Config) string { return c.NaNCheck.String() },
		}},
	{Name: "GOROVOD_CONSISTENCY", section: reports, Agreed: true, Doc: "after so many steps of a " +
		"`DistributedOptimizer` for PyTorch, the ranks compare their parameters, and fail where they differ; 0: never",
		setting: whole(func(c *Config) *int { return &c.ConsistencySteps }, 0, 1<<30)},
	{Name: "GOROVOD_FLIGHT_RECORDS", section: reports, Doc: "how many of its last operations each rank remembers for " +
		"`gorovod doctor --dump` and GOROVOD_DUMP_DIR, up to 65536; 0: none",
		setting: whole(func(c *Config) *int { return &c.FlightRecords }, 0, 1<<16)},
	{Name: "GOROVOD_DUMP_DIR", section: reports, Doc: "directory into which each rank writes its last operations, as " +
		"JSON, when something fails; `-`: the last 30 to stderr, as text. Without it only `gorovod doctor " +
		"--dump` shows them",
		setting: text(func(c *Config) *string { return &c.DumpDir })},
	{Name: "HOROVOD_TIMELINE", section: reports, Doc: "file to which rank 0 writes a Chrome trace of all operations; " +
		"`DYNAMIC`: none until `hvd.start_timeline()`. With `{rank}` in its name each rank writes one; " +
		"see docs/traces.md",
		setting: text(func(c *Config) *string { return &c.Timeline })},
	{Name: "HOROVOD_TIMELINE_MARK_CYCLES", section: reports, Doc: "1: the timeline marks each batch of operations " +
		"with CYCLE_START",
		setting: boolean(func(c *Config) *bool { return &c.TimelineMarkCycles })},
	{Name: "HOROVOD_LOG_LEVEL", section: reports, Doc: "`trace`, `debug`, `info`, `warning`, `error` or `fatal`; " +
		"`trace` shows the same as `debug`, and `fatal` the same as `error`",
		setting: logLevel},
	{Name: logging.FormatVariable, section: reports, setting: logFormat,
		Doc: "`text`, or `json`: each log line, and each message of `horovodrun`, is one JSON object, see " +
			"docs/logging.md"},
	{Name: "HOROVOD_LOG_HIDE_TIME", section: reports, Doc: "1: log lines without the time",
		setting: boolean(func(c *Config) *bool { return &c.LogHideTime })},

	{Name: "HOROVOD_RANK", section: placement, Doc: "this rank's number among all ranks",
		setting: whole(func(c *Config) *int { return &c.Told.Rank }, 0, 1<<20)},
	{Name: "HOROVOD_SIZE", section: placement, Doc: "number of ranks",
		setting: whole(func(c *Config) *int { return &c.Told.Size }, 1, 1<<20)},
	{Name: "HOROVOD_LOCAL_RANK", section: placement, Doc: "this rank's number among the ranks of its host",
		setting: whole(func(c *Config) *int { return &c.Told.LocalRank }, 0, 1<<20)},
	{Name: "HOROVOD_LOCAL_SIZE", section: placement, Doc: "number of ranks on its host",
		setting: whole(func(c *Config) *int { return &c.Told.LocalSize }, 1, 1<<20)},
	{Name: "HOROVOD_CROSS_RANK", section: placement, Doc: "its host's number among the hosts that have this local rank",
		setting: whole(func(c *Config) *int { return &c.Told.CrossRank }, 0, 1<<20)},
	{Name: "HOROVOD_CROSS_SIZE", section: placement, Doc: "number of hosts that have this local rank",
		setting: whole(func(c *Config) *int { return &c.Told.CrossSize }, 1, 1<<20)},
	{Name: "HOROVOD_HOSTNAME", section: placement, Doc: "name of this rank's host. Ranks with the same name share " +
		"memory, if they can; others use TCP",
		setting: text(func(c *Config) *string { return &c.Told.Hostname })},
	{Name: "HOROVOD_GLOO_IFACE", section: placement, Doc: "network interfaces, separated by commas, on which this " +
		"rank listens for the others; without it, all interfaces of its host",
		setting: list(func(c *Config) *[]string { return &c.Interfaces }, func(v string) error {
			if v == "" {
				return fmt.Errorf("names of interfaces, separated by commas, are needed")
			}
			return nil
		})},
	{Name: "GOROVOD_RENDEZVOUS_ADDRS", section: placement, Doc: "addresses (HOST:PORT) at which the ranks may find " +
		"the rendezvous, separated by commas, the likeliest first",
		setting: list(func(c *Config) *[]string { return &c.Told.Rendezvous }, hostPort)},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_ADDR", section: placement, Doc: "address of the rendezvous, where the ranks find " +
		"one another. Without it, and without another launcher, a program is rank 0 of 1",
		setting: text(func(c *Config) *string { return &c.rendezvousHost })},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_PORT", section: placement, Doc: "its port",
		setting: setting{
			parse: func(c *Config, v string) error {
				c.rendezvousPort = v
				return checkPort(v)
			},
			show: func(c *Config) string { return c.rendezvousPort },
		}},
	{Name: "GOROVOD_RENDEZVOUS_DIR", section: placement, Doc: "directory on all hosts through which ranks of another " +
		"launcher (srun, mpirun, mpiexec, torchrun, jsrun) meet",
		setting: text(func(c *Config) *string { return &c.RendezvousDir })},
	{Name: "GOROVOD_SECRET_FILE", section: placement, Doc: "a file with the secret that HOROVOD_SECRET_KEY would " +
		"have, such as a mounted Secret of Kubernetes; also for `horovodrun --nnodes`. A regular file " +
		"of at most 4 KiB",
		setting: setting{parse: func(c *Config, v string) error {
			var err error
			c.Told.Key, err = ReadKey(v)
			return err
		}}},
	{Name: "HOROVOD_SECRET_KEY", section: placement, Secret: true, Doc: "the job's secret: at least 32 hexadecimal " +
		"digits. Each connection proves first that it knows the secret",
		setting: setting{parse: func(c *Config, v string) error {
			var err error
			c.Told.Key, err = ParseKey(v)
			return err
		}}},

	{Name: "GOROVOD_ELASTIC_DRIVER", section: placement, Doc: "addresses (HOST:PORT) of the driver of an elastic " +
		"job. The driver gives this process its place at each `hvd.init()`",
		setting: list(func(c *Config) *[]string { return &c.ElasticDriver }, hostPort)},
	{Name: "GOROVOD_ELASTIC_WORKER", section: placement, Doc: "this process's number among all processes that the " +
		"elastic job has had",
		setting: whole(func(c *Config) *int { return &c.ElasticWorker }, 0, 1<<30)},

	{Name: "GOROVOD_SSH", section: elsewhere, By: "horovodrun", Doc: "the program that reaches other hosts in place " +
		"of `ssh`, with its first arguments; see docs/launcher.md"},
	{Name: "GOROVOD_LEAVE_ON", section: elsewhere, By: "horovodrun", Doc: "default of `--leave-on`: a file or a URL " +
		"that tells a node of `--nnodes MIN:MAX` to leave the job; see docs/kubernetes.md"},
	{Name: "GOROVOD_METRICS", section: elsewhere, By: "horovodrun", Doc: "default of `--metrics-port`: `PORT` or " +
		"`HOST:PORT` at which the launcher, or rank 0 of another launcher's job, shows what all ranks do. " +
		"Empty: nowhere; 0: a free port, not off; see docs/metrics.md"},
	{Name: "GOROVOD_DASHBOARD", section: elsewhere, By: "horovodrun", Doc: "default of `--dashboard`: `PORT` or " +
		"`HOST:PORT` at which the launcher shows the job on a page, or rank 0 as with GOROVOD_METRICS. Empty: " +
		"nowhere; 0: a free port, not off; see docs/dashboard.md"},
	{Name: "GOROVOD_SUMMARY", section: elsewhere, By: "horovodrun",
		Doc: "whether a job ends with a summary of where its time went, on stderr. Empty: one of 30 s or " +
			"more; 0: none; 1: one of a few seconds, too; see docs/dashboard.md"},
	{Name: "GOROVOD_METRICS_TOKEN_FILE", section: elsewhere, By: "horovodrun",
		Doc: "a file with the token that readers of the metrics and the dashboard have to present; needed where " +
			"other hosts reach them. A regular file of at most 4 KiB"},
	{Name: "GOROVOD_METRICS_TOKEN", section: elsewhere, By: "horovodrun", Secret: true,
		Doc: "the token itself, which counts more. The ranks do not inherit it, except with `--mpi` or `-x`"},
	{Name: "GOROVOD_METRICS_CERT", section: elsewhere, By: "horovodrun",
		Doc: "a file with a TLS certificate (PEM) for the metrics; needed with GOROVOD_TLS=1 where other hosts reach " +
			"them"},
	{Name: "GOROVOD_METRICS_KEY", section: elsewhere, By: "horovodrun", Doc: "a file with the certificate's key"},
	{Name: "GOROVOD_OTLP", section: elsewhere, By: "horovodrun", Doc: "1: the launcher sends spans of the job, its " +
		"worlds, steps and failures to the collector of OpenTelemetry at OTEL_EXPORTER_OTLP_ENDPOINT; see " +
		"docs/traces.md"},
	{Name: "HOROVOD_START_TIMEOUT", section: elsewhere, By: "horovodrun", check: checkSeconds(1e6),
		Doc: "default of `--start-timeout`, in seconds"},
	{Name: "HOROVOD_ELASTIC_TIMEOUT", section: elsewhere, By: "horovodrun", check: checkSeconds(1e6),
		Doc: "default of `--elastic-timeout`: seconds for which an elastic job waits for slots and for its " +
			"processes; 600 if neither is given"},
	{Name: "HOROVOD_SPARK_START_TIMEOUT", section: elsewhere, By: "Python", check: checkSeconds(1e6),
		Doc: "default of `start_timeout` in `horovod.spark.run` and `run_elastic`, in seconds"},
	{Name: "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", section: elsewhere, By: "Python",
		Doc: "1: the GPUs that Spark gives to its tasks are left out of account; local ranks choose among all"},
	{Name: "GOROVOD_ELASTIC_BLACKLIST", section: elsewhere, By: "horovodrun", check: checkChoice("slot", "host"),
		Doc: "what a failed process costs an elastic job. `slot`, the default: its slot, and its host after another " +
			"failure there within the cooldown; `host`: its host at once, as in Horovod"},
	{Name: "HOROVOD_ELASTIC", section: elsewhere, By: "Python", Doc: "1: `DistributedOptimizer` reduces gradients " +
		"even in a world of one. `horovodrun` sets it in elastic jobs"},
	{Name: "OMPI_COMM_WORLD_RANK", section: elsewhere, By: "Python",
		Doc: "the rank, for launchers' helpers in Python, where HOROVOD_RANK is not set"},
	{Name: "OMPI_COMM_WORLD_SIZE", section: elsewhere, By: "Python", Doc: "the same for the size. docs/schedulers.md " +
		"has all variables of launchers that `hvd.init()` reads"},
	{Name: "PMI_RANK", section: elsewhere, By: "Python", Doc: "like OMPI_COMM_WORLD_RANK, after it"},
	{Name: "PMI_SIZE", section: elsewhere, By: "Python", Doc: "like OMPI_COMM_WORLD_SIZE, after it"},
	{Name: "GOROVOD_LIBRARY", section: elsewhere, By: "Python", Doc: "path of the libgorovod.so to load in place of " +
		"the package's own"},
	{Name: "GOROVOD_PURE_PYTHON", section: elsewhere, By: "Python", Doc: "1: calls of PyTorch, TensorFlow and JAX go " +
		"without the compiled short way to the engine, which is at least twice as fast for small tensors"},
	{Name: "GOROVOD_WITHOUT_PATCHES", section: elsewhere, By: "Python", check: checkPatches,
		Doc: "names of patches, or `all`: what gorovod leaves as it is in Python and the frameworks. " +
			"docs/patches.md lists them"},
	{Name: "GOROVOD_JAX_CALLBACKS", section: elsewhere, By: "Python", Doc: "1: collectives in compiled programs of " +
		"JAX are ordered callbacks into Python; without it they are native operations, where XLA can have them"},
}
