// Package flags reads the command line of horovodrun: its options, its settings file, and what the environment adds to
// them. Parse refuses whatever cannot work before anything starts.
//
// An option is a field of Flags, whose tags are its help, its completion and its page of the documentation. The methods
// of Flags say what the options mean: the hosts, the environment of the ranks, the rules of an elastic job, the way to
// other hosts. This package must not start anything.
package flags

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/notice"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/observe/otlp"
)

// Flags are horovodrun's options. A nil pointer is an option that was not given.
type Flags struct {
	Version    bool   `short:"v" help:"Print the version."`
	CheckBuild bool   `onedash:"cb" aliases:"cb" help:"Print which frameworks the job's Python has, and what else this installation offers."`
	NumProc    int    `onedash:"np" aliases:"np" placeholder:"N" help:"Number of processes. Required without --nnodes. Default: as many as all nodes may run."`
	Verbose    bool   `help:"Say what the launcher does. Default: only problems."`
	ConfigFile string `placeholder:"FILE" help:"Read settings from a YAML file; options win over it. Default: none."`

	Hosts              string   `group:"Hosts" short:"H" placeholder:"HOST:SLOTS,..." help:"Hosts, and how many processes each may run; IPv6 addresses as [::1]:2. Default: localhost:N." xor:"hosts"`
	Hostfile           string   `group:"Hosts" onedash:"hostfile" placeholder:"FILE" help:"Read the hosts from a file, with a line 'HOST slots=SLOTS' for each. Default: --hosts." xor:"hosts"`
	SSHPort            *int     `group:"Hosts" name:"ssh-port" short:"p" placeholder:"PORT" help:"Port of the other hosts' sshd. Default: what ssh's configuration says."`
	SSHIdentityFile    string   `group:"Hosts" name:"ssh-identity-file" short:"i" placeholder:"FILE" help:"Private key for the other hosts. Default: what ssh's configuration says."`
	RemoteCommand      string   `group:"Hosts" own:"" placeholder:"COMMAND" help:"The command that runs gorovod on the other hosts. Default: the first of this program's own path, gorovod in the PATH there, and gorovod beside the job's Python."`
	NetworkInterfaces  []string `group:"Hosts" aliases:"network-interface" placeholder:"NAME,..." help:"Network interfaces that a job over several hosts may use. Each host uses those that it has, and must have one. Default: all."`
	StartTimeout       *int     `group:"Hosts" placeholder:"SECONDS" help:"Seconds that the launcher may need to connect to the other hosts, that the processes wait for one another in hvd.init(), and that the first run of --host-discovery-script may take. Default: $$HOROVOD_START_TIMEOUT, or 30 (60 for the script)."`
	GlooTimeoutSeconds *int     `group:"Hosts" placeholder:"SECONDS" help:"Seconds that the processes wait for one another in hvd.init(). Default: 30."`

	NNodes       string `group:"A launcher on each node" own:"" name:"nnodes" placeholder:"N[:MAX]" help:"Number of nodes, where the same command is run on each: in the pods of a Kubernetes Job, for instance. They meet at node 0. Needs GOROVOD_SECRET_FILE. N:MAX makes the job elastic: nodes may come and go, and it trains while at least N are there. Default: $$PET_NNODES."`
	NodeRank     *int   `group:"A launcher on each node" own:"" placeholder:"K" help:"This node's number, from 0. Default: $$PET_NODE_RANK, or $$JOB_COMPLETION_INDEX."`
	MasterAddr   string `group:"A launcher on each node" own:"" placeholder:"HOST" help:"Node 0's name or address. Default: $$PET_MASTER_ADDR, that of $$PET_RDZV_ENDPOINT, or this node's name with 0 in place of its number: train-0.train for train-3.train."`
	MasterPort   *int   `group:"A launcher on each node" own:"" placeholder:"PORT" help:"Node 0's port. Default: $$PET_MASTER_PORT, or 29500."`
	NprocPerNode string `group:"A launcher on each node" own:"" placeholder:"N" help:"Processes on this node: a number, gpu, cpu, or auto: one for each GPU, else for each CPU that its container may use. Default: $$PET_NPROC_PER_NODE, or auto."`

	RdzvID  string `group:"A launcher on each node" own:"" name:"rdzv-id" placeholder:"NAME" help:"The job's name. Node 0 turns nodes away that give another one. Default: $$PET_RDZV_ID, or none."`
	LeaveOn string `group:"A launcher on each node" own:"" placeholder:"WHERE" help:"When the file WHERE is there, or the URL WHERE answers with a cloud's notice that the machine is to go, this node leaves an elastic job, as after SIGTERM. Default: $$GOROVOD_LEAVE_ON, or SIGTERM alone."`

	MinNP             *int   `group:"Elastic jobs" name:"min-np" aliases:"min-num-proc" placeholder:"N" help:"Make the job elastic: it goes on while at least N processes are left. Default: the number of -np."`
	MaxNP             *int   `group:"Elastic jobs" name:"max-np" aliases:"max-num-proc" placeholder:"N" help:"The largest number of processes of an elastic job. Default: the number of slots."`
	DiscoveryScript   string `group:"Elastic jobs" name:"host-discovery-script" placeholder:"COMMAND" xor:"hosts" help:"Make the job elastic: the launcher runs the command every second, and the command prints a line HOST or HOST:SLOTS for each host. Default: the hosts do not change."`
	SlotsPerHost      *int   `group:"Elastic jobs" placeholder:"N" help:"Slots of a discovered host whose line does not say how many it has. Default: 1."`
	ElasticTimeout    *int   `group:"Elastic jobs" placeholder:"SECONDS" help:"Seconds that an elastic job waits for slots and for its processes. Default: $$HOROVOD_ELASTIC_TIMEOUT, or 600."`
	ResetLimit        *int   `group:"Elastic jobs" placeholder:"N" help:"How often an elastic job may be formed anew. Default: no limit."`
	BlacklistCooldown []int  `group:"Elastic jobs" name:"blacklist-cooldown-range" sep:"," placeholder:"MIN MAX" help:"Seconds for which an elastic job does not use a slot or host that has failed: MIN, doubled with each failure, at most MAX. Default: for ever."`

	Export          []string `group:"Processes" own:"" name:"export" short:"x" sep:"none" placeholder:"NAME[=VALUE]" help:"Set a variable in the processes' environment, or pass on one that they do not inherit, such as CUDA_VISIBLE_DEVICES. They inherit almost all others. Default: none."`
	OutputFilename  string   `group:"Processes" placeholder:"DIR" help:"Write each process's output also to DIR/rank.N/stdout and DIR/rank.N/stderr. Default: no files."`
	PrefixTimestamp bool     `group:"Processes" onedash:"prefix-timestamp" name:"prefix-output-with-timestamp" aliases:"prefix-timestamp" help:"Put the time before each line of output. Default: no time."`
	GracePeriod     *float64 `group:"Processes" own:"" placeholder:"SECONDS" help:"Seconds that the other processes may go on after the first one has failed; then the launcher ends them. Default: 5."`

	FusionThresholdMB     *int     `group:"Performance" name:"fusion-threshold-mb" placeholder:"MIB" help:"MiB of small tensors that are reduced together; 0 turns fusion off. Default: 128."`
	CacheCapacity         *int     `group:"Performance" placeholder:"N" help:"Number of tensors that the ranks need not agree on again; 0 turns the cache off. Default: 1024."`
	CycleTimeMS           *float64 `group:"Performance" name:"cycle-time-ms" placeholder:"MS" help:"Milliseconds that a small tensor waits for others to travel with it. Default: 0."`
	HierarchicalAllreduce *bool    `group:"Performance" negatable:"" help:"Reduce inside each host first, then between hosts; no-: do not. Default: if a model of the cost expects it to be faster."`
	HierarchicalAllgather *bool    `group:"Performance" negatable:"" help:"The same for allgathers. Default: if the model expects it to be faster."`
	TorusAllreduce        *bool    `group:"Performance" negatable:"" help:"Another name of --hierarchical-allreduce. Default: as there."`

	Autotune                     *bool    `group:"Search for better settings" negatable:"" help:"Search for faster settings while the job runs. Default: off."`
	AutotuneLogFile              string   `group:"Search for better settings" placeholder:"FILE" help:"Write the measurements of the search to FILE, as CSV. Default: no file."`
	AutotuneWarmupSamples        *int     `group:"Search for better settings" placeholder:"N" help:"Number of measurements at the start that do not count. Default: 3."`
	AutotuneStepsPerSample       *int     `group:"Search for better settings" placeholder:"N" help:"Number of training steps in a sample; five samples make a measurement. Default: 10."`
	AutotuneBayesOptMaxSamples   *int     `group:"Search for better settings" placeholder:"N" help:"Number of measurements that the search may make. Default: 20."`
	AutotuneGaussianProcessNoise *float64 `group:"Search for better settings" placeholder:"X" help:"How much measurements scatter: the variance of bytes per microsecond, from 0 to 1. Default: 0.8."`

	TimelineFilename              string `group:"Reports" placeholder:"FILE" help:"Write a Chrome trace of all operations to FILE; DYNAMIC: only after hvd.start_timeline(). With {rank} in its name each rank writes a file, for gorovod trace merge; otherwise rank 0 does. Default: no trace."`
	TimelineMarkCycles            *bool  `group:"Reports" negatable:"" help:"Mark each batch of operations in the timeline. Default: off."`
	StallCheck                    *bool  `group:"Reports" negatable:"" help:"Report tensors that only some processes have submitted. Default: on."`
	StallCheckWarningTimeSeconds  *int   `group:"Reports" placeholder:"SECONDS" help:"Seconds until such a tensor is reported, and between two reports. Default: 60."`
	StallCheckShutdownTimeSeconds *int   `group:"Reports" placeholder:"SECONDS" help:"Seconds until such a tensor ends the job; 0: it never does. Default: 0."`
	MetricsPort                   string `group:"Reports" own:"" placeholder:"[HOST:]PORT" help:"Show what the processes do at http://127.0.0.1:PORT/metrics, for Prometheus; PORT 0: any. On an address that other hosts reach, it needs GOROVOD_METRICS_TOKEN_FILE. Default: $$GOROVOD_METRICS, or nowhere."`
	Dashboard                     string `group:"Reports" own:"" placeholder:"[=[HOST:]PORT]" help:"Show the job on a page: who waits for whom, operations in flight, memory. Alone: at a free port of this host. On an address that other hosts reach, it needs GOROVOD_METRICS_TOKEN_FILE. Default: $$GOROVOD_DASHBOARD, or nowhere."`
	LogLevel                      string `group:"Reports" placeholder:"LEVEL" words:"TRACE,DEBUG,INFO,WARNING,ERROR,FATAL" help:"How much gorovod logs: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL. Default: WARNING."`
	LogTime                       *bool  `group:"Reports" name:"log-with-timestamp" negatable:"log-without-timestamp" help:"Put the time before each line of gorovod's own log. Default: on."`

	MPI               bool   `group:"MPI" name:"mpi" help:"Let mpirun start the processes, and MPI carry the data. Default: off."`
	MPIArgs           string `group:"MPI" name:"mpi-args" placeholder:"ARGS" help:"More arguments of mpirun; write --mpi-args=... Default: none."`
	BindingArgs       string `group:"MPI" placeholder:"ARGS" help:"Arguments of mpirun that bind processes. Default: -bind-to none -map-by slot."`
	MPIThreadsDisable *bool  `group:"MPI" name:"mpi-threads-disable" negatable:"" help:"Initialise MPI for one thread only. Default: off."`

	Gloo           bool `group:"Accepted for compatibility" help:"No effect: gorovod's own transports take the place of Gloo."`
	TCP            bool `group:"Accepted for compatibility" name:"tcp" help:"No effect: hosts use TCP anyway. GOROVOD_TRANSPORT=tcp makes processes of one host use it, too."`
	DisableCache   bool `group:"Accepted for compatibility" help:"No effect: gorovod does not cache the results of checks."`
	NumNCCLStreams *int `group:"Accepted for compatibility" name:"num-nccl-streams" placeholder:"N" help:"No effect: each process set has one stream and one communicator."`
	ThreadAffinity *int `group:"Accepted for compatibility" placeholder:"CORE" help:"No effect: the engine has no thread of its own to bind."`

	// For horovod.run:
	//  Input: the file with each process's stdin
	//  Results: the folder for the third streams, a file for each rank
	//  Report: the file for a report
	//  Lifeline: a descriptor whose end means that the caller is gone
	Input    string `hidden:"" placeholder:"FILE"`
	Results  string `hidden:"" placeholder:"DIR"`
	Report   string `hidden:"" placeholder:"FILE"`
	Lifeline *int   `hidden:"" placeholder:"FD"`

	// For horovod.runner.launch.parse_args: print the parsed arguments, and start nothing.
	Parsed bool `hidden:""`

	Warnings []string `kong:"-"` // what check says about options and variables without effect

	MPIByVariable bool `kong:"-"` // no option has set MPI: see chooseController

	Help    string   `kong:"-"` // --help was given: print it
	Command []string `kong:"-"` // from the first argument that is no option

	Certificates auth.Certificates `kong:"-"` // for TLS

	Place  *nodes.Place `kong:"-"` // this node's place in a job in which each node has a launcher; else nil
	MPIJob bool         `kong:"-"` // the hosts are those that an MPIJob's operator has listed
}

const (
	defaultGrace        = 5 * time.Second
	DefaultStartTimeout = 30 * time.Second
)

func (f *Flags) check(options []string) error {
	given := false
	for _, o := range options {
		name, _, _ := strings.Cut(o, "=")
		given = given || name == "--np" || name == "--num-proc"
	}
	switch {
	case given && f.NumProc < 1:
		return fmt.Errorf("-np %d: at least 1 process is needed", f.NumProc)
	case f.inMPIJob(os.Getenv):
		if err := f.useMPIJob(given); err != nil {
			return err
		}
		f.MPIJob = true
	case f.apart(given, os.Getenv):
		if err := f.checkNodes(os.Getenv); err != nil {
			return err
		}
	case !given:
		return errors.New("-np is missing: say how many processes to start, for instance: horovodrun -np 2 " +
			"python train.py")
	}
	if os.Getenv(notice.LeaveVariable) != "" && f.LeaveOn == "" && (f.Place == nil || !f.Place.Elastic) &&
		!inRank(os.Getenv) {
		f.Warnings = append(f.Warnings,
			notice.LeaveVariable+" is not used: only in an elastic job of which each node has a "+
				"launcher (--nnodes MIN:MAX) can a node leave by itself")
	}
	if err := f.checkCommand(given); err != nil {
		return err
	}
	if err := f.checkElastic(); err != nil {
		return err
	}
	if err := f.chooseController(os.Getenv); err != nil {
		return err
	}
	switch {
	case f.MPI && f.Gloo:
		return errors.New("--gloo and --mpi: one of them")
	case f.MPI && f.Lookup(otlp.Variable) == "1":
		return errors.New("GOROVOD_OTLP: processes of mpirun meet without the launcher, which learns nothing of " +
			"them: unset it, or do without --mpi")
	case f.MPI && f.IsElastic():
		return errors.New("--mpi: MPI cannot carry an elastic job: after a failure a process cannot go on with it")
	case !f.MPI && f.MPIArgs != "":
		return errors.New("--mpi-args is for jobs that mpirun starts: give --mpi, too")
	case !f.MPI && f.BindingArgs != "":
		return errors.New("--binding-args is for jobs that mpirun starts: give --mpi, too, or bind inside the " +
			"command, for instance with taskset or numactl")
	}
	if err := secondsFrom("HOROVOD_START_TIMEOUT", &f.StartTimeout); err != nil {
		return err
	}
	if err := f.checkNumbers(); err != nil {
		return err
	}
	if err := f.CheckSSHPort(); err != nil {
		return err
	}
	if err := f.findCertificates(); err != nil {
		return err
	}
	if err := f.checkExports(); err != nil {
		return err
	}
	return f.checkLogLevel()
}

// checkCommand refuses a job without a command. given says that -np was. The options that --parsed reads may stand
// alone.
func (f *Flags) checkCommand(given bool) error {
	switch {
	case len(f.Command) == 0 && f.Parsed:
		return nil
	case len(f.Command) == 0 && f.Place != nil && !given:
		return errors.New("no command: say what to run, for instance: horovodrun --nnodes 2 python train.py")
	case len(f.Command) == 0:
		return fmt.Errorf("no command: say what to run, for instance: horovodrun -np %d python train.py", f.NumProc)
	}
	if _, err := strconv.ParseUint(f.Command[0], 10, 16); err == nil && f.Dashboard == AnyPort {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s is taken for the command; for a port write %s=%[1]s",
			f.Command[0], DashboardOption))
	}
	return nil
}

func (f *Flags) checkLogLevel() error {
	switch f.LogLevel {
	case "", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL":
	default:
		return fmt.Errorf("--log-level %s: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL is needed", f.LogLevel)
	}
	return nil
}

// secondsFrom reads a number of seconds from a variable, for an option that was not given.
func secondsFrom(variable string, option **int) error {
	env := os.Getenv(variable)
	if *option != nil || env == "" {
		return nil
	}
	if err := config.Check(variable, env); err != nil {
		return err
	}
	n, _ := strconv.Atoi(env) // Check has refused anything else
	*option = &n
	return nil
}

// RangeError is checkNumbers' refusal. For a caller of horovod.runner.launch.parse_args it is a ValueError.
type RangeError string

func (e RangeError) Error() string { return string(e) }

func outOfRange(format string, args ...any) error { return RangeError(fmt.Sprintf(format, args...)) }

// checkNumbers refuses numbers out of their range.
func (f *Flags) checkNumbers() error {
	for _, v := range []struct {
		name  string
		value *int
		least int
		most  int
	}{
		{"fusion-threshold-mb", f.FusionThresholdMB, 0, math.MaxInt32},
		{"cache-capacity", f.CacheCapacity, 0, config.MaxCacheCapacity},
		{"gloo-timeout-seconds", f.GlooTimeoutSeconds, 1, 1e6},
		{"start-timeout", f.StartTimeout, 1, 1e6},
		{"num-nccl-streams", f.NumNCCLStreams, 0, math.MaxInt32},
		{"thread-affinity", f.ThreadAffinity, 0, math.MaxInt32},
		{"autotune-warmup-samples", f.AutotuneWarmupSamples, 0, 1e6},
		{"autotune-steps-per-sample", f.AutotuneStepsPerSample, 1, 1e6},
		{"autotune-bayes-opt-max-samples", f.AutotuneBayesOptMaxSamples, 1, 1000},
		{"stall-check-warning-time-seconds", f.StallCheckWarningTimeSeconds, 1, 1e6},
		{"stall-check-shutdown-time-seconds", f.StallCheckShutdownTimeSeconds, 0, 1e6},
	} {
		if v.value != nil && (*v.value < v.least || *v.value > v.most) {
			return outOfRange("--%s %d: a number from %d to %d is needed", v.name, *v.value, v.least, v.most)
		}
	}
	if ms := f.CycleTimeMS; ms != nil && !(*ms >= 0 && *ms <= 60000) {
		return outOfRange("--cycle-time-ms %v: a number of milliseconds from 0 to 60000 is needed", *ms)
	}
	if x := f.AutotuneGaussianProcessNoise; x != nil && !(*x >= 0 && *x <= 1) {
		return outOfRange("--autotune-gaussian-process-noise %v: a number from 0 to 1 is needed", *x)
	}
	if g := f.GracePeriod; g != nil && !(*g >= 0 && *g <= 1e6) {
		return outOfRange("--grace-period %v: a number of seconds from 0 to 1000000 is needed", *g)
	}
	return nil
}

// checkExports refuses variables that -x cannot pass on, and warns of unset ones.
func (f *Flags) checkExports() error {
	for _, x := range f.Export {
		name, _, given := strings.Cut(x, "=")
		if !variableName().MatchString(name) {
			return fmt.Errorf("-x %s: the name of a variable is needed, or NAME=VALUE", name)
		}
		if launchers().MatchString(name) {
			return fmt.Errorf("-x %s: the launcher sets this variable itself, for each process", name)
		}
		if _, set := os.LookupEnv(name); !given && !set {
			f.Warnings = append(f.Warnings, fmt.Sprintf("-x %s: it is not set here, so there is nothing to hand on",
				name))
		}
	}
	return nil
}

func (f *Flags) Grace() time.Duration {
	if f.GracePeriod == nil {
		return defaultGrace
	}
	return time.Duration(*f.GracePeriod * float64(time.Second))
}

func (f *Flags) HostList() ([]placement.Host, error) {
	switch {
	case f.Hosts != "":
		return placement.ParseHosts(f.Hosts)
	case f.Hostfile != "":
		text, err := readSettings(f.Hostfile)
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		hosts, err := placement.ParseHostfile(f.Hostfile, string(text))
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		return hosts, nil
	}
	return []placement.Host{{Name: "localhost", Slots: f.NumProc}}, nil
}

// Notes describe options that are accepted and change nothing. far says that the job has other hosts.
func (f *Flags) Notes(far bool) (notes []string) {
	if f.DisableCache {
		notes = append(notes, "--disable-cache: no results of checks are cached, so there is nothing to disable")
	}
	if f.TCP && far {
		notes = append(notes, "--tcp: TCP is what runs between hosts; GOROVOD_TRANSPORT=tcp makes processes of one "+
			"host use it, too")
	}
	if f.TCP && !far {
		notes = append(notes, "--tcp: all processes run on this host and use its shared memory; "+
			"GOROVOD_TRANSPORT=tcp makes them use TCP")
	}
	if f.NumNCCLStreams != nil {
		notes = append(notes, "--num-nccl-streams: each process set has one stream")
	}
	if f.ThreadAffinity != nil {
		notes = append(notes, "--thread-affinity: the engine has no thread to bind; bind inside the command, for "+
			"instance with taskset")
	}
	if f.SlotsPerHost != nil && f.DiscoveryScript == "" {
		notes = append(notes, "--slots-per-host: the hosts of this job say how many slots they have; the option is "+
			"for those of --host-discovery-script")
	}
	if f.tunesSearch() && f.Autotune == nil && os.Getenv("HOROVOD_AUTOTUNE") == "" {
		notes = append(notes, "--autotune-...: nothing is searched for without --autotune")
	}
	for _, name := range f.NetworkInterfaces {
		if name != "lo" && !far {
			notes = append(notes, fmt.Sprintf("--network-interfaces %s: all processes run on this host and use its "+
				"loopback interface", strings.Join(f.NetworkInterfaces, ",")))
			break
		}
	}
	return notes
}

// tunesSearch reports whether settings of --autotune are given.
func (f *Flags) tunesSearch() bool {
	return f.AutotuneLogFile != "" || f.AutotuneWarmupSamples != nil || f.AutotuneStepsPerSample != nil ||
		f.AutotuneBayesOptMaxSamples != nil || f.AutotuneGaussianProcessNoise != nil
}

// separate splits options that were given as lists into their items.
func separate(lists []string) (items []string) {
	for _, l := range lists {
		for _, item := range strings.Split(l, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
	}
	return items
}

// variableName matches the names that shells accept.
var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// launchers matches the variables of a process's place, which options cannot set.
var launchers = lazyregexp.New(
	`^(_?HOROVOD_SECRET_KEY|HOROVOD_(HOSTNAME|RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|GLOO_RENDEZVOUS_ADDR|GLOO_RENDEZVOUS_PORT)|GOROVOD_(RENDEZVOUS_ADDRS|ELASTIC_DRIVER|ELASTIC_WORKER|RESULT_FD))$`)

// Controllers are the variables that choose MPI: to meet, and to carry the data.
var Controllers = []string{"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}

// chooseController uses the variables of -x, or of the launcher's environment, if no option and no file has chosen. It
// refuses values that ranks would refuse, because the launcher sets the variables anew for them.
func (f *Flags) chooseController(getenv func(string) string) error {
	given := map[string]string{}
	for _, name := range Controllers {
		given[name] = getenv(name)
		for _, x := range f.Export {
			if v, ok := strings.CutPrefix(x, name+"="); ok {
				given[name] = v
			}
		}
		lookup := func(n string) (string, bool) { return given[n], n == name && given[n] != "" }
		if err := config.Read(lookup).Err(); err != nil {
			return err
		}
	}
	if f.MPI || f.Gloo {
		return nil
	}
	for _, name := range Controllers {
		value := given[name]
		if !strings.EqualFold(value, "mpi") {
			continue
		}
		switch {
		case f.IsElastic():
			f.Warnings = append(f.Warnings, name+"="+value+" does not count: MPI cannot carry an elastic job")
		case f.Place != nil:
			f.Warnings = append(f.Warnings, name+"="+value+" does not count: each node's launcher starts its "+
				"processes itself")
		case f.Input != "" || f.Results != "":
			f.Warnings = append(f.Warnings, name+"="+value+" does not count: horovod.run hands functions to "+
				"processes that this launcher starts itself")
		default:
			f.MPI, f.MPIByVariable = true, true
			f.Warnings = append(f.Warnings, name+"="+value+" is set: this job is started as with --mpi; --gloo "+
				"overrides it")
		}
		return nil
	}
	return nil
}

// CheckFiles refuses missing files of ssh, for which ssh would only warn on each host. It does not check a name that
// ssh completes.
func (f *Flags) CheckFiles() error {
	if name := f.SSHIdentityFile; name != "" && !strings.HasPrefix(name, "~") && !strings.Contains(name, "%") {
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("--ssh-identity-file: %w", err)
		}
	}
	return nil
}

func (f *Flags) CheckSSHPort() error {
	if p := f.SSHPort; p != nil && (*p < 1 || *p > 65535) {
		return fmt.Errorf("--ssh-port %d: a number from 1 to 65535 is needed", *p)
	}
	return nil
}

// Environ returns the launcher's environment for the processes, with the variables of the options.
func (f *Flags) Environ(own []string) []string {
	env := f.tune(placement.Exportable(own))
	for _, x := range f.Export {
		name, value, given := strings.Cut(x, "=")
		if !given {
			found := false
			for _, e := range own {
				if v, ok := strings.CutPrefix(e, name+"="); ok {
					value, found = v, true
				}
			}
			if !found {
				continue // check has warned
			}
		}
		env = environment.Set(env, name, value)
	}
	return env
}

// ConnectTimeout is how long connecting to hosts may take.
func (f *Flags) ConnectTimeout() time.Duration {
	if f.StartTimeout == nil {
		return DefaultStartTimeout
	}
	return time.Duration(*f.StartTimeout) * time.Second
}

// tune returns env with the options' settings for the processes.
func (f *Flags) tune(env []string) []string {
	set := func(name, value string) { env = environment.Set(env, name, value) }
	number := func(name string, v *int, unit int) {
		if v != nil {
			set(name, strconv.Itoa(*v*unit))
		}
	}
	flag := func(name string, on bool) {
		if on {
			set(name, "1")
		} else {
			set(name, "0")
		}
	}
	number("HOROVOD_FUSION_THRESHOLD", f.FusionThresholdMB, 1<<20)
	number("HOROVOD_CACHE_CAPACITY", f.CacheCapacity, 1)
	// hvd.init() has one wait, so both options set it. Horovod's own name for it wins.
	number("HOROVOD_GLOO_TIMEOUT_SECONDS", f.StartTimeout, 1)
	number("HOROVOD_GLOO_TIMEOUT_SECONDS", f.GlooTimeoutSeconds, 1)
	if f.CycleTimeMS != nil {
		set("HOROVOD_CYCLE_TIME", strconv.FormatFloat(*f.CycleTimeMS, 'f', -1, 64))
	}
	hint := func(name string, on *bool) {
		if on != nil {
			flag(name, *on)
		}
	}
	hint("HOROVOD_HIERARCHICAL_ALLREDUCE", f.HierarchicalAllreduce)
	hint("HOROVOD_HIERARCHICAL_ALLGATHER", f.HierarchicalAllgather)
	hint("HOROVOD_TORUS_ALLREDUCE", f.TorusAllreduce)
	if f.Autotune != nil {
		flag("HOROVOD_AUTOTUNE", *f.Autotune)
	}
	if f.AutotuneLogFile != "" {
		set("HOROVOD_AUTOTUNE_LOG", f.AutotuneLogFile)
	}
	number("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", f.AutotuneWarmupSamples, 1)
	number("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", f.AutotuneStepsPerSample, 1)
	number("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", f.AutotuneBayesOptMaxSamples, 1)
	if f.AutotuneGaussianProcessNoise != nil {
		set("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", strconv.FormatFloat(*f.AutotuneGaussianProcessNoise,
			'g', -1, 64))
	}
	hint("HOROVOD_MPI_THREADS_DISABLE", f.MPIThreadsDisable)
	number("HOROVOD_NUM_NCCL_STREAMS", f.NumNCCLStreams, 1)
	number("HOROVOD_THREAD_AFFINITY", f.ThreadAffinity, 1)
	if f.LogLevel != "" {
		set("HOROVOD_LOG_LEVEL", f.LogLevel)
	}
	if f.LogTime != nil {
		flag("HOROVOD_LOG_HIDE_TIME", !*f.LogTime)
	}
	if f.TimelineFilename != "" {
		set("HOROVOD_TIMELINE", f.TimelineFilename)
	}
	if f.TimelineMarkCycles != nil {
		flag("HOROVOD_TIMELINE_MARK_CYCLES", *f.TimelineMarkCycles)
	}
	if f.StallCheck != nil {
		flag("HOROVOD_STALL_CHECK_DISABLE", !*f.StallCheck)
	}
	number("HOROVOD_STALL_CHECK_TIME_SECONDS", f.StallCheckWarningTimeSeconds, 1)
	number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", f.StallCheckShutdownTimeSeconds, 1)
	return env
}

// Lookup is a variable of the ranks' environment, which -x can change, or else the launcher's own. It says what the
// launcher shows and reports of them.
func (f *Flags) Lookup(name string) string { return environment.Get(f.Environ(os.Environ()), name) }

// Asked returns an option's value, or else its variable's, and the name of the one it took, for errors.
func (f *Flags) Asked(value, option, variable string) (address, said string) {
	if value != "" {
		return value, option
	}
	return f.Lookup(variable), variable
}
