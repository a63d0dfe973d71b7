package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/tensor"
)

//go:generate go test -run TestDocs -update

// Knobs is the table: every variable that exists here or in Horovod, once.
var Knobs = slices.Concat(implemented, foreign)

// implemented are the knobs that have an effect.
var implemented = []Knob{
	{Name: "HOROVOD_FUSION_THRESHOLD", Agreed: true, Doc: "bytes of small tensors that travel together; 0: each tensor alone",
		setting: size(func(c *Config) *int64 { return &c.FusionThreshold })},
	{Name: "HOROVOD_CYCLE_TIME", Agreed: true, Doc: "milliseconds for which a small tensor that is ready may be held back for others to travel with it, 0 to 60000; 0: not at all. Horovod's default is 1",
		setting: duration(func(c *Config) *time.Duration { return &c.CycleTime }, time.Millisecond, 60000, true, "a number of milliseconds from 0 to 60000")},
	{Name: "HOROVOD_DISABLE_GROUP_FUSION", Agreed: true, Doc: "1: the tensors of a group travel with one another only",
		setting: boolean(func(c *Config) *bool { return &c.DisableGroupFusion })},
	{Name: "HOROVOD_CACHE_CAPACITY", Agreed: true, Doc: "how many tensors of each process set are remembered, so that their next round needs no message, up to 65536; 0: none",
		setting: whole(func(c *Config) *int { return &c.CacheCapacity }, 0, MaxCacheCapacity)},
	{Name: "HOROVOD_DYNAMIC_PROCESS_SETS", Agreed: true, Doc: "1: process sets may be added and removed after `hvd.init()`",
		setting: boolean(func(c *Config) *bool { return &c.DynamicSets })},
	{Name: "GOROVOD_JOIN_ALL_OPS", Agreed: true, Doc: "1: allgather, broadcast, alltoall and reducescatter work while a rank has joined, which then contributes an empty part (rows that an alltoall has for it are an error); 0: they are errors, as in Horovod",
		setting: boolean(func(c *Config) *bool { return &c.JoinAllOps })},
	{Name: "GOROVOD_COMPRESSION", Agreed: true, Doc: "`fp16` or `bf16`: sums and averages of float32 and float64 travel between hosts in 16 bits a number, and are summed in the tensor's own type (`fp16`: what a host's ranks come to together must stay below 65504, also for an average; `bf16` has float32's range); `none`: as they are, unless `hvd.Compression` asks for it",
		setting: setting{
			parse: func(c *Config, v string) (err error) {
				c.Compression, err = tensor.ParseWire(v)
				return err
			},
			show: func(c *Config) string { return c.Compression.String() },
		}},
	{Name: "GOROVOD_TRANSPORT", Agreed: true, Doc: "`shm` (shared memory, one host), `tcp`, or `auto`: shared memory where all ranks can map it",
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
	{Name: "GOROVOD_SINGLE_COPY", Agreed: true, Doc: "1: ranks that share memory read and write one another's tensors in place in large allreduces, where no more than two of them share a core, the system lets all of them (process_vm_readv), and it is faster; 0: everything passes through the shared segment",
		setting: boolean(func(c *Config) *bool { return &c.SingleCopy })},
	{Name: "GOROVOD_HUGE_PAGES", Doc: "1: tensors that other ranks of the host read and write in place (`GOROVOD_SINGLE_COPY`) again and again are moved into huge pages from the third time on, where that takes an eighth of a page more at most (madvise MADV_COLLAPSE, Linux 6.1 or later; not where the system's `transparent_hugepage/enabled` is `never`); 0: they stay in the pages where they are",
		setting: boolean(func(c *Config) *bool { return &c.HugePages })},
	{Name: "HOROVOD_AUTOTUNE", Agreed: true, Doc: "1: rank 0 searches, while the job runs, for the settings with which allreduces move the most bytes: fusion threshold, hold-back time, how much is staged or sent at a time (`chunk_kb`, `piece_kb`), what a message counts in the choice of algorithm (`message_kb`), and whether hosts are reduced in themselves first. The defaults stay unless something is better when both are measured again in turn; only what moves about as many bytes as the greatest of the first measurements counts, so that training is not compared with validation, and a job that seldom does that any more ends with the defaults; what the environment sets stays as it is. A step has passed when a name comes again, so tensors need names; after an elastic reset the search begins anew",
		setting: boolean(func(c *Config) *bool { return &c.Autotune.On })},
	{Name: "HOROVOD_AUTOTUNE_LOG", Doc: "file to which rank 0 writes what has been tried, as CSV, since the last elastic reset",
		setting: text(func(c *Config) *string { return &c.Autotune.Log })},
	{Name: "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", Doc: "how many measurements at the start are forgotten",
		setting: whole(func(c *Config) *int { return &c.Autotune.Warmup }, 0, 1e6)},
	{Name: "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", Doc: "steps that make a sample; five samples make a measurement",
		setting: whole(func(c *Config) *int { return &c.Autotune.Steps }, 1, 1e6)},
	{Name: "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", Doc: "how many measurements the search may make; rank 0 thinks about each for longer the more there are: a tenth of a second after 50, a fifth after 100",
		setting: whole(func(c *Config) *int { return &c.Autotune.Points }, 1, 1000)},
	{Name: "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", Doc: "how much measurements are thought to scatter beyond what is seen: a variance, in (bytes/µs)², from 0 to 1",
		setting: fraction(func(c *Config) *float64 { return &c.Autotune.Noise })},
	{Name: "GOROVOD_TLS", Agreed: true, Doc: "1: what goes over TCP, control and data, is encrypted (TLS 1.3, bound to the job's secret), see docs/security.md; 0: it is proved, but neither encrypted nor signed. Shared memory needs none. It cannot be combined with operations over MPI",
		setting: protection(func(c *Config) *bool { return &c.TLS })},
	{Name: "GOROVOD_TCP_STREAMS", Agreed: true, Doc: "TCP connections that carry the data from a rank to another, up to 64: a message of at least 128 KiB is cut into as many parts. 0: as many as a host has network interfaces that are equally fast and in subnets of their own, over which they are spread; one interface counts where the drivers do not tell how fast they are, unless HOROVOD_GLOO_IFACE names several. More than that helps where a single one cannot fill the link",
		setting: whole(func(c *Config) *int { return &c.TCPStreams }, 0, 64)},
	{Name: "HOROVOD_HIERARCHICAL_ALLREDUCE", Agreed: true, Doc: "for jobs on several hosts. `1`: allreduces and reducescatters are made of parts inside the hosts and parts between them (reducescatters where all hosts have equally many ranks); `0`: they are not; `auto`: as a model of their cost says, which is nearly always as 1",
		setting: hint(func(c *Config) *Hint { return &c.HierarchicalAllreduce })},
	{Name: "HOROVOD_HIERARCHICAL_ALLGATHER", Agreed: true, Doc: "the same of allgathers, where the ranks of each host have consecutive numbers",
		setting: hint(func(c *Config) *Hint { return &c.HierarchicalAllgather })},
	{Name: "HOROVOD_TORUS_ALLREDUCE", Agreed: true, Doc: "another name for HOROVOD_HIERARCHICAL_ALLREDUCE, since the form is the same: reducescatter inside the hosts, allreduce of each rank's part between them, allgather inside. If one of the two is 1, so are both",
		setting: hint(func(c *Config) *Hint { return &c.TorusAllreduce })},
	{Name: "GOROVOD_DETERMINISTIC", Agreed: true, Doc: "1: between hosts, too, elements are combined in one order, host after host, whatever the fusion, the sizes and the tuning, so that a run repeats bit for bit; 0: as is fastest. On one host the order is always that of the ranks",
		setting: boolean(func(c *Config) *bool { return &c.Deterministic })},
	{Name: "HOROVOD_CONTROLLER", Doc: "how the ranks find one another. `gloo`: by a rendezvous that the environment tells; `mpi`: over MPI, which has started them, and what HOROVOD_RANK and its kin say does not count. If only one of this and HOROVOD_CPU_OPERATIONS is set to `mpi`, so is the other; see docs/mpi.md",
		setting: backend(func(c *Config) *Backend { return &c.Controller }, nil)},
	{Name: "HOROVOD_CPU_OPERATIONS", Agreed: true, Doc: "what carries the data. `gloo`: the native transports; `mpi`: MPI; `ccl` is refused: there is no oneCCL",
		setting: backend(func(c *Config) *Backend { return &c.CPUOperations }, map[string]string{"ccl": "there is no oneCCL backend"})},
	{Name: "HOROVOD_MPI_THREADS_DISABLE", Doc: "1: MPI is initialized for one thread, which makes all calls of it; 0: for several, so that the program may call MPI, too",
		setting: boolean(func(c *Config) *bool { return &c.MPIThreadsDisable })},
	{Name: "GOROVOD_MPI_LIBRARY", Doc: "name or path of the libmpi to load; without it that which the program has loaded, else that of the launcher, else the first of Open MPI's, MPICH's and the standard interface's that is installed",
		setting: text(func(c *Config) *string { return &c.MPILibrary })},
	{Name: "HOROVOD_GLOO_TIMEOUT_SECONDS", Doc: "seconds for which ranks wait for one another in `hvd.init()`; operations wait without limit, see the stall check",
		setting: duration(func(c *Config) *time.Duration { return &c.Timeout }, time.Second, 1e6, false, "a number of seconds above 0, up to 1000000,")},

	{Name: "GOROVOD_CHECKPOINT_DIR", Agreed: true, Doc: "directory into which rank 0 writes commits of an elastic state (`state.commit()`), and from which a job that is started again goes on; it should be the same storage on all hosts",
		setting: text(func(c *Config) *string { return &c.CheckpointDir })},
	{Name: "GOROVOD_CHECKPOINT_EVERY", Agreed: true, Doc: "of how many commits one is written there",
		setting: whole(func(c *Config) *int { return &c.CheckpointEvery }, 1, 1<<30)},

	{Name: "HOROVOD_STALL_CHECK_DISABLE", section: reports, Agreed: true, Doc: "1: tensors that some ranks wait for are not reported, nor do they end the job",
		setting: boolean(func(c *Config) *bool { return &c.StallCheckDisable })},
	{Name: "HOROVOD_STALL_CHECK_TIME_SECONDS", section: reports, Agreed: true, Doc: "seconds after which a tensor that only some ranks have submitted is reported, and again each time they have passed",
		setting: duration(func(c *Config) *time.Duration { return &c.StallCheckTime }, time.Second, 1e6, false, "a number of seconds above 0, up to 1000000 (HOROVOD_STALL_CHECK_DISABLE=1 turns the check off),")},
	{Name: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", section: reports, Agreed: true, Doc: "seconds after which such a tensor ends the job; 0: never. It is ignored if below HOROVOD_STALL_CHECK_TIME_SECONDS",
		setting: duration(func(c *Config) *time.Duration { return &c.StallShutdownTime }, time.Second, 1e6, true, "a number of seconds from 0 to 1000000")},
	{Name: "GOROVOD_DEADLOCK_ABORT", section: reports, Agreed: true, Doc: "1: ranks of which each waits for a tensor that another of them has not submitted end the job, with an error that names ranks and tensors, once their main threads have waited so for HOROVOD_STALL_CHECK_TIME_SECONDS and nothing was submitted on them meanwhile; 0: such a stall is reported like any other. With HOROVOD_STALL_CHECK_DISABLE=1 it has no effect",
		setting: boolean(func(c *Config) *bool { return &c.DeadlockAbort })},
	{Name: "GOROVOD_HEARTBEAT_SECONDS", section: reports, Agreed: true, Doc: "seconds after which a rank that others wait for counts as lost if neither its process nor its host answers: stopped, frozen or cut off; at least 5, or 0: never. A rank that computes answers, however long it takes. Nobody asks while nobody waits",
		setting: heartbeat},
	{Name: "GOROVOD_FLIGHT_RECORDS", section: reports, Doc: "how many of its last operations each rank remembers, up to 65536, for `gorovod doctor --dump` and GOROVOD_DUMP_DIR; 0: none",
		setting: whole(func(c *Config) *int { return &c.FlightRecords }, 0, 1<<16)},
	{Name: "GOROVOD_DUMP_DIR", section: reports, Doc: "directory where each rank writes what became of its last operations, as JSON, when something fails; `-`: the last 30 to stderr, as text; without it they are told to `gorovod doctor --dump` alone",
		setting: text(func(c *Config) *string { return &c.DumpDir })},
	{Name: "HOROVOD_TIMELINE", section: reports, Doc: "file to which rank 0 writes a Chrome trace of all operations; `DYNAMIC`: none until `hvd.start_timeline()`",
		setting: text(func(c *Config) *string { return &c.Timeline })},
	{Name: "HOROVOD_TIMELINE_MARK_CYCLES", section: reports, Doc: "1: the timeline marks each batch of operations with CYCLE_START",
		setting: boolean(func(c *Config) *bool { return &c.TimelineMarkCycles })},
	{Name: "HOROVOD_LOG_LEVEL", section: reports, Doc: "`trace`, `debug`, `info`, `warning`, `error` or `fatal`; trace shows what debug does, fatal what error does", setting: logLevel},
	{Name: "HOROVOD_LOG_HIDE_TIME", section: reports, Doc: "1: log lines without the time",
		setting: boolean(func(c *Config) *bool { return &c.LogHideTime })},

	{Name: "HOROVOD_RANK", section: placement, Doc: "this rank's number among all ranks",
		setting: whole(func(c *Config) *int { return &c.Rank }, 0, 1<<20)},
	{Name: "HOROVOD_SIZE", section: placement, Doc: "number of ranks",
		setting: whole(func(c *Config) *int { return &c.Size }, 1, 1<<20)},
	{Name: "HOROVOD_LOCAL_RANK", section: placement, Doc: "this rank's number among the ranks of its host",
		setting: whole(func(c *Config) *int { return &c.LocalRank }, 0, 1<<20)},
	{Name: "HOROVOD_LOCAL_SIZE", section: placement, Doc: "number of ranks on its host",
		setting: whole(func(c *Config) *int { return &c.LocalSize }, 1, 1<<20)},
	{Name: "HOROVOD_CROSS_RANK", section: placement, Doc: "its host's number among the hosts that have this local rank",
		setting: whole(func(c *Config) *int { return &c.CrossRank }, 0, 1<<20)},
	{Name: "HOROVOD_CROSS_SIZE", section: placement, Doc: "number of hosts that have this local rank",
		setting: whole(func(c *Config) *int { return &c.CrossSize }, 1, 1<<20)},
	{Name: "HOROVOD_HOSTNAME", section: placement, Doc: "name of this rank's host; ranks share memory with those of the same name, if they can, and use TCP to reach the others",
		setting: text(func(c *Config) *string { return &c.Hostname })},
	{Name: "HOROVOD_GLOO_IFACE", section: placement, Doc: "the network interfaces, separated by commas, on whose addresses this rank listens for the others: those that its host has, and one at least; without it they may use any address of its host, and only loopback where all ranks are on one",
		setting: list(func(c *Config) *[]string { return &c.Interfaces }, func(v string) error {
			if v == "" {
				return fmt.Errorf("names of interfaces, separated by commas, are needed")
			}
			return nil
		})},
	{Name: "GOROVOD_RENDEZVOUS_ADDRS", section: placement, Doc: "addresses (HOST:PORT) at which the ranks may find the rendezvous, separated by commas, the likeliest first. They are tried side by side, and the first that proves to know the job's secret is used; that of the next two variables is the last of them",
		setting: list(func(c *Config) *[]string { return &c.Rendezvous }, hostPort)},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_ADDR", section: placement, Doc: "where the ranks find one another; without it, and without another launcher, a program is rank 0 of 1",
		setting: text(func(c *Config) *string { return &c.rendezvousHost })},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_PORT", section: placement, Doc: "its port",
		setting: setting{
			parse: func(c *Config, v string) error {
				c.rendezvousPort = v
				return checkPort(v)
			},
			show: func(c *Config) string { return c.rendezvousPort },
		}},
	{Name: "GOROVOD_RENDEZVOUS_DIR", section: placement, Doc: "for ranks that srun, mpirun, mpiexec, torchrun or jsrun has started: a directory that all hosts share, in which rank 0 leaves the rendezvous' address and the job's secret for the others, in a file that only its owner may read. Without it they use what the launcher offers, see docs/schedulers.md",
		setting: text(func(c *Config) *string { return &c.RendezvousDir })},
	{Name: "HOROVOD_SECRET_KEY", section: placement, Secret: true, Doc: "the job's secret in hexadecimal, 32 digits at least and best 64 random ones, as `openssl rand -hex 32` makes; each connection proves knowledge of it first. Made by `horovodrun` for each job, never put on a command line",
		setting: setting{parse: func(c *Config, v string) error {
			var err error
			c.Key, err = ParseKey(v)
			return err
		}}},

	{Name: "GOROVOD_ELASTIC_DRIVER", section: placement, Doc: "addresses (HOST:PORT) of the driver of an elastic job, which gives this process its place at each `hvd.init()`",
		setting: list(func(c *Config) *[]string { return &c.ElasticDriver }, hostPort)},
	{Name: "GOROVOD_ELASTIC_WORKER", section: placement, Doc: "this process's number among all that the job has had",
		setting: whole(func(c *Config) *int { return &c.ElasticWorker }, 0, 1<<30)},

	{Name: "GOROVOD_SSH", section: elsewhere, By: "horovodrun", Doc: "what reaches other hosts in place of `ssh`, with arguments to come first; see the page of the launcher"},
	{Name: "HOROVOD_START_TIMEOUT", section: elsewhere, By: "horovodrun", Doc: "what `--start-timeout` is without that option: seconds that other hosts may take to be connected, and for which ranks wait for one another in `hvd.init()`, 30 if neither is given, and which the first run of a discovery script may take, 60 if neither is given"},
	{Name: "HOROVOD_ELASTIC_TIMEOUT", section: elsewhere, By: "horovodrun", Doc: "what `--elastic-timeout` is without that option: seconds for which an elastic job waits for slots and for its processes, 600 if neither is given"},
	{Name: "GOROVOD_ELASTIC_BLACKLIST", section: elsewhere, By: "horovodrun", Doc: "`slot`, the default: a process of an elastic job that fails costs its slot, and its host if one fails there again within the cooldown; `host`: it costs its host at once, as in Horovod"},
	{Name: "HOROVOD_ELASTIC", section: elsewhere, By: "Python", Doc: "1, as `horovodrun` sets it in elastic jobs: the gradients of `DistributedOptimizer` are reduced even in a world of one"},
	{Name: "OMPI_COMM_WORLD_RANK", section: elsewhere, By: "Python", Doc: "rank for launchers' helpers in Python, where HOROVOD_RANK is not set"},
	{Name: "OMPI_COMM_WORLD_SIZE", section: elsewhere, By: "Python", Doc: "size for the same; it and the other variables of launchers tell `hvd.init()` its place where HOROVOD_RANK and HOROVOD_SIZE do not, see docs/schedulers.md"},
	{Name: "PMI_RANK", section: elsewhere, By: "Python", Doc: "like OMPI_COMM_WORLD_RANK, after it"},
	{Name: "PMI_SIZE", section: elsewhere, By: "Python", Doc: "like OMPI_COMM_WORLD_SIZE, after it"},
	{Name: "GOROVOD_LIBRARY", section: elsewhere, By: "Python", Doc: "path of the libgorovod.so to load in place of the package's own"},
	{Name: "GOROVOD_JAX_CALLBACKS", section: elsewhere, By: "Python", Doc: "1: collectives in compiled programs of JAX are ordered callbacks into Python, as they are where XLA cannot have them as operations of its own; without it they are such operations, on the CPU and with jaxlib 0.9 or later"},
}
