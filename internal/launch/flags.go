package launch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gorovod/gorovod/internal/lazyregexp"
)

// flags are horovodrun's options. A pointer tells a given value from none.
type flags struct {
	Version    bool `short:"v" help:"Print the version."`
	CheckBuild bool `aliases:"cb" help:"Print what this installation offers (also -cb)."`

	NumProc int    `aliases:"np" placeholder:"N" help:"Number of processes (also -np)."`
	Hosts   string `short:"H" placeholder:"HOST:SLOTS,..." help:"Where to run; IPv6 addresses as [::1]:2. Default: localhost with N slots." xor:"hosts"`
	// Upstream spells the next one -hostfile as well.
	Hostfile        string `placeholder:"FILE" help:"File with a line 'HOST slots=SLOTS' for each host." xor:"hosts"`
	SSHPort         *int   `name:"ssh-port" short:"p" placeholder:"PORT" help:"Port of the other hosts' sshd. Default: ssh's own."`
	SSHIdentityFile string `name:"ssh-identity-file" short:"i" placeholder:"FILE" help:"Private key for the other hosts. Default: ssh's own."`
	RemoteCommand   string `placeholder:"COMMAND" help:"What gorovod is called on the other hosts. Default: this program's own path, or gorovod in the PATH there, or beside the job's Python."`

	MinNP             *int   `name:"min-np" aliases:"min-num-proc" placeholder:"N" help:"Make the job elastic: it goes on with as few processes as this (also --min-num-proc). Default: the number of processes."`
	MaxNP             *int   `name:"max-np" aliases:"max-num-proc" placeholder:"N" help:"Of an elastic job: how many processes it takes at most (also --max-num-proc). Default: as many as there are slots."`
	DiscoveryScript   string `name:"host-discovery-script" placeholder:"COMMAND" xor:"hosts" help:"Make the job elastic: the command prints a line HOST or HOST:SLOTS for each host that there is, and is asked every second."`
	SlotsPerHost      *int   `placeholder:"N" help:"Slots of discovered hosts that do not say how many they have. Default: 1."`
	ElasticTimeout    *int   `placeholder:"SECONDS" help:"How long an elastic job waits for slots and for its processes. Default: $$HOROVOD_ELASTIC_TIMEOUT, or 600."`
	ResetLimit        *int   `placeholder:"N" help:"How often an elastic job may be formed anew. Default: any number of times."`
	BlacklistCooldown []int  `name:"blacklist-cooldown-range" sep:"," placeholder:"MIN MAX" help:"For how many seconds, at least and at most, what has failed is left out of an elastic job. Default: for ever."`

	Gloo        bool   `help:"Accepted for compatibility: gorovod's own transport takes the place of Gloo."`
	MPI         bool   `name:"mpi" help:"Let mpirun start the processes, and MPI carry the data."`
	MPIArgs     string `name:"mpi-args" placeholder:"ARGS" help:"With --mpi: more arguments of mpirun (give it as --mpi-args=...)."`
	BindingArgs string `placeholder:"ARGS" help:"With --mpi: arguments of mpirun that bind processes. Default: -bind-to none -map-by slot."`

	Verbose         bool     `help:"Tell what the launcher does."`
	StartTimeout    *int     `placeholder:"SECONDS" help:"How long the other hosts may take to be connected, and how long the processes wait for one another in hvd.init(). Default: $$HOROVOD_START_TIMEOUT, or 30."`
	GracePeriod     *float64 `placeholder:"SECONDS" help:"How long the other processes may go on after the first has failed, before they are terminated. Default: 5."`
	Export          []string `name:"export" short:"x" sep:"none" placeholder:"NAME[=VALUE]" help:"Set a variable in the processes' environment, or hand on one that they would not inherit. All others are inherited anyway."`
	ConfigFile      string   `placeholder:"FILE" help:"YAML file with settings; options win over it."`
	OutputFilename  string   `placeholder:"DIR" help:"Write each process's output to DIR/rank.N/stdout and stderr, too."`
	PrefixTimestamp bool     `name:"prefix-output-with-timestamp" aliases:"prefix-timestamp" help:"Put the time before each line of output (also -prefix-timestamp)."`

	FusionThresholdMB            *int     `name:"fusion-threshold-mb" placeholder:"MIB" help:"How much is reduced together; 0 disables fusion. Default: 128."`
	CacheCapacity                *int     `placeholder:"N" help:"Number of tensors whose negotiation is remembered; 0 disables the cache. Default: 1024."`
	CycleTimeMS                  *float64 `name:"cycle-time-ms" placeholder:"MS" help:"How long a small tensor that is ready may be held back for others to travel with it. Default: 0."`
	HierarchicalAllreduce        *bool    `negatable:"" help:"Make allreduces over several hosts of parts inside the hosts and parts between them; no-: do not. Default: where it is thought to be faster."`
	HierarchicalAllgather        *bool    `negatable:"" help:"The same for allgathers."`
	TorusAllreduce               *bool    `negatable:"" help:"Another name for --hierarchical-allreduce: both do the same."`
	Autotune                     *bool    `negatable:"" help:"Search for better settings while the job runs."`
	AutotuneLogFile              string   `placeholder:"FILE" help:"Write what has been tried to FILE, as CSV."`
	AutotuneWarmupSamples        *int     `placeholder:"N" help:"How many measurements at the start are forgotten. Default: 3."`
	AutotuneStepsPerSample       *int     `placeholder:"N" help:"Steps that make a sample. Default: 10."`
	AutotuneBayesOptMaxSamples   *int     `placeholder:"N" help:"How many measurements the search may make. Default: 20."`
	AutotuneGaussianProcessNoise *float64 `placeholder:"X" help:"How much measurements are thought to scatter, 0 to 1. Default: 0.8."`

	GlooTimeoutSeconds *int   `placeholder:"SECONDS" help:"How long the processes wait for one another in hvd.init(). Default: 30."`
	LogLevel           string `placeholder:"LEVEL" help:"TRACE, DEBUG, INFO, WARNING, ERROR or FATAL. Default: WARNING."`

	LogTime           *bool    `name:"log-with-timestamp" negatable:"log-without-timestamp" help:"Put the time before each line of gorovod's own log, which is the default."`
	NetworkInterfaces []string `aliases:"network-interface" placeholder:"NAME" help:"Interfaces that a job over several hosts may use, separated by commas: each host uses those of these names that it has, and must have one. Default: all that work."`
	TCP               bool     `name:"tcp" help:"Accepted for compatibility: TCP is what runs between hosts; GOROVOD_TRANSPORT=tcp makes processes of one host use it, too."`
	DisableCache      bool     `help:"Accepted for compatibility: no results of checks are cached."`

	TimelineFilename   string `placeholder:"FILE" help:"Write a Chrome trace of all operations to FILE; DYNAMIC: none until hvd.start_timeline()."`
	TimelineMarkCycles *bool  `negatable:"" help:"Mark each batch of operations in the timeline."`

	StallCheck                    *bool `negatable:"" help:"Report tensors that only some processes have submitted, which is the default."`
	StallCheckWarningTimeSeconds  *int  `placeholder:"SECONDS" help:"When such a tensor is reported, and how often. Default: 60."`
	StallCheckShutdownTimeSeconds *int  `placeholder:"SECONDS" help:"When such a tensor ends the job; 0: never. Default: 0."`

	MPIThreadsDisable *bool `name:"mpi-threads-disable" negatable:"" help:"Ask MPI for no threads."`
	NumNCCLStreams    *int  `name:"num-nccl-streams" placeholder:"N" help:"Accepted for compatibility: NCCL is not used."`
	ThreadAffinity    *int  `placeholder:"CORE" help:"Accepted for compatibility: the engine has no thread of its own to bind."`

	// For horovod.run: each process's stdin; where the third stream of each goes, as
	// a file for each rank; where a report goes; and a descriptor whose end is the caller's.
	Input    string `hidden:"" placeholder:"FILE"`
	Results  string `hidden:"" placeholder:"DIR"`
	Report   string `hidden:"" placeholder:"FILE"`
	Lifeline *int   `hidden:"" placeholder:"FD"`

	warnings []string // what check has to say about options and variables without effect

	mpiByVariable bool // no option has set MPI: see chooseController

	help    string   // --help was given: print it
	command []string // from the first argument that is no option
}

// otherNames are deprecated ones, which mean the opposite of what they negate.
var otherNames = map[string]string{"--log-hide-timestamp": "--log-without-timestamp", "--no-log-hide-timestamp": "--log-with-timestamp"}

// longWithOneDash are the long options that upstream spells with one dash.
var longWithOneDash = map[string]bool{"np": true, "cb": true, "hostfile": true, "prefix-timestamp": true}

// emptyMeansNone are options whose value is a list of words, which may have none.
var emptyMeansNone = map[string]bool{"--mpi-args": true, "--binding-args": true}

const (
	defaultGrace        = 5 * time.Second
	defaultStartTimeout = 30 * time.Second
)

// parseFlags parses and checks what can be checked without a look at the host.
func parseFlags(name string, args []string) (*flags, error) {
	f := &flags{}
	var help bytes.Buffer
	parser, err := kong.New(f, kong.Name(name), kong.Writers(&help, &help), kong.Exit(func(int) {}),
		kong.Description("Start N processes of a command on this host or on several, connect them, and watch over them. The command begins at the first argument that is no option."))
	if err != nil {
		return nil, err
	}
	options, command, warnings, err := split(parser, args)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(options); err != nil {
		return nil, err
	}
	if help.Len() > 0 {
		f.help = help.String()
		return f, nil
	}
	if err := checkOpposites(parser, options); err != nil {
		return nil, err
	}
	f.command, f.warnings = command, warnings
	if f.Version || f.CheckBuild {
		return f, nil
	}
	if given := f.NetworkInterfaces; len(given) > 0 {
		for _, o := range options {
			if name, list, _ := strings.Cut(o, "="); name == "--network-interface" && strings.Contains(list, ",") {
				f.warnings = append(f.warnings, "--network-interface "+list+": a list of names is for "+interfacesOption)
			}
		}
		if f.NetworkInterfaces = separate(given); len(f.NetworkInterfaces) == 0 {
			return nil, fmt.Errorf("%s: names of interfaces are needed", interfacesOption)
		}
	}
	if f.ConfigFile != "" {
		if err := f.readConfig(f.ConfigFile); err != nil {
			return nil, fmt.Errorf("--config-file: %w", err)
		}
	}
	return f, f.check(options)
}

// split cuts args where the command begins, spells options as the parser wants
// them, and refuses those of Horovod that this version does not have. It warns of old names.
func split(parser *kong.Kong, args []string) (options, command, warnings []string, err error) {
	takesValue := map[string]bool{}
	for _, flag := range parser.Model.Flags {
		value := !flag.IsBool()
		takesValue["--"+flag.Name] = value
		for _, alias := range flag.Aliases {
			takesValue["--"+alias] = value
		}
		if flag.Short != 0 {
			takesValue["-"+string(flag.Short)] = value
		}
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return options, args[i+1:], warnings, nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			return options, args[i:], warnings, nil
		}
		option, value, inline := strings.Cut(arg, "=")
		if longWithOneDash[strings.TrimPrefix(option, "-")] {
			option, arg = "-"+option, "-"+arg
		}
		if name, ok := otherNames[option]; ok {
			warnings = append(warnings, option+" is an old name: use "+name)
			option, arg = name, name+strings.TrimPrefix(arg, option)
		}
		if why := refusal(option); why != "" {
			return nil, nil, nil, errors.New(why)
		}
		if !takesValue[option] {
			options = append(options, arg)
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return nil, nil, nil, fmt.Errorf("%s: a value is missing", args[i-1])
			}
			value = args[i]
			if option == cooldownOption && !strings.Contains(value, ",") {
				if i++; i < len(args) {
					value += "," + args[i]
				}
			}
		}
		if value == "" && !emptyMeansNone[option] {
			return nil, nil, nil, fmt.Errorf("%s: its value is empty: is a variable in the command not set?", option)
		}
		if option == cooldownOption && !twoSeconds().MatchString(value) {
			return nil, nil, nil, fmt.Errorf("%s %s: two numbers of seconds are needed, MIN MAX", option, strings.Replace(value, ",", " ", 1))
		}
		if strings.HasPrefix(option, "--") {
			// Joined, so that a negative number is not taken for an option.
			options = append(options, option+"="+value)
		} else {
			options = append(options, option, value)
		}
	}
	return options, nil, warnings, nil
}

// cooldownOption has two values.
const cooldownOption = "--blacklist-cooldown-range"

var twoSeconds = lazyregexp.New(`^-?[0-9]{1,18},-?[0-9]{1,18}$`)

func (f *flags) check(options []string) error {
	given := false
	for _, o := range options {
		given = given || strings.HasPrefix(o, "--np") || strings.HasPrefix(o, "--num-proc")
	}
	switch {
	case !given:
		return errors.New("-np is missing: say how many processes to start, for instance: horovodrun -np 2 python train.py")
	case f.NumProc < 1:
		return fmt.Errorf("-np %d: at least 1 process is needed", f.NumProc)
	case len(f.command) == 0:
		return fmt.Errorf("no command: say what to run, for instance: horovodrun -np %d python train.py", f.NumProc)
	}
	if err := f.checkElastic(); err != nil {
		return err
	}
	f.chooseController(os.Getenv)
	switch {
	case f.MPI && f.Gloo:
		return errors.New("--gloo and --mpi: one of them")
	case f.MPI && f.elastic():
		return errors.New("--mpi: MPI cannot carry an elastic job: after a failure a process cannot go on with it")
	case !f.MPI && f.MPIArgs != "":
		return errors.New("--mpi-args is for jobs that mpirun starts: give --mpi, too")
	case !f.MPI && f.BindingArgs != "":
		return errors.New("--binding-args is for jobs that mpirun starts: give --mpi, too, or bind inside the command, for instance with taskset or numactl")
	}
	if env := os.Getenv("HOROVOD_START_TIMEOUT"); f.StartTimeout == nil && env != "" {
		n, err := strconv.Atoi(env)
		if err != nil {
			return fmt.Errorf("HOROVOD_START_TIMEOUT=%s: a number of seconds is needed", env)
		}
		f.StartTimeout = &n
	}
	for _, v := range []struct {
		name  string
		value *int
		least int
		most  int
	}{
		{"fusion-threshold-mb", f.FusionThresholdMB, 0, math.MaxInt32},
		{"cache-capacity", f.CacheCapacity, 0, math.MaxInt32},
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
			return fmt.Errorf("--%s %d: a number from %d to %d is needed", v.name, *v.value, v.least, v.most)
		}
	}
	if ms := f.CycleTimeMS; ms != nil && !(*ms >= 0 && *ms <= 60000) {
		return fmt.Errorf("--cycle-time-ms %v: a number of milliseconds from 0 to 60000 is needed", *ms)
	}
	if x := f.AutotuneGaussianProcessNoise; x != nil && !(*x >= 0 && *x <= 1) {
		return fmt.Errorf("--autotune-gaussian-process-noise %v: a number from 0 to 1 is needed", *x)
	}
	if g := f.GracePeriod; g != nil && !(*g >= 0 && *g <= 1e6) {
		return fmt.Errorf("--grace-period %v: a number of seconds from 0 to 1000000 is needed", *g)
	}
	if err := f.checkSSHPort(); err != nil {
		return err
	}
	for _, x := range f.Export {
		name, _, given := strings.Cut(x, "=")
		if !variableName().MatchString(name) {
			return fmt.Errorf("-x %s: the name of a variable is needed, or NAME=VALUE", name)
		}
		if launchers().MatchString(name) {
			return fmt.Errorf("-x %s: the launcher sets this variable itself, for each process", name)
		}
		if _, set := os.LookupEnv(name); !given && !set {
			f.warnings = append(f.warnings, fmt.Sprintf("-x %s: it is not set here, so there is nothing to hand on", name))
		}
	}
	switch f.LogLevel {
	case "", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL":
	default:
		return fmt.Errorf("--log-level %s: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL is needed", f.LogLevel)
	}
	return nil
}

func (f *flags) grace() time.Duration {
	if f.GracePeriod == nil {
		return defaultGrace
	}
	return time.Duration(*f.GracePeriod * float64(time.Second))
}

func (f *flags) hosts() ([]Host, error) {
	switch {
	case f.Hosts != "":
		return parseHosts(f.Hosts)
	case f.Hostfile != "":
		text, err := readSettings(f.Hostfile)
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		hosts, err := parseHostfile(f.Hostfile, string(text))
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		return hosts, nil
	}
	return []Host{{Name: "localhost", Slots: f.NumProc}}, nil
}

// notes tell about options that are accepted and change nothing; far says that
// there are hosts other than this one.
func (f *flags) notes(far bool) (notes []string) {
	if f.DisableCache {
		notes = append(notes, "--disable-cache: no results of checks are cached, so there is nothing to disable")
	}
	if f.TCP && far {
		notes = append(notes, "--tcp: TCP is what runs between hosts; GOROVOD_TRANSPORT=tcp makes processes of one host use it, too")
	}
	if f.TCP && !far {
		notes = append(notes, "--tcp: all processes run on this host and use its shared memory; GOROVOD_TRANSPORT=tcp makes them use TCP")
	}
	if f.NumNCCLStreams != nil {
		notes = append(notes, "--num-nccl-streams: NCCL is not used")
	}
	if f.ThreadAffinity != nil {
		notes = append(notes, "--thread-affinity: the engine has no thread to bind; bind inside the command, for instance with taskset")
	}
	if f.SlotsPerHost != nil && f.DiscoveryScript == "" {
		notes = append(notes, "--slots-per-host: the hosts of this job say how many slots they have; the option is for those of --host-discovery-script")
	}
	if f.tunesSearch() && f.Autotune == nil && os.Getenv("HOROVOD_AUTOTUNE") == "" {
		notes = append(notes, "--autotune-...: nothing is searched for without --autotune")
	}
	for _, name := range f.NetworkInterfaces {
		if name != "lo" && !far {
			notes = append(notes, fmt.Sprintf("--network-interfaces %s: all processes run on this host and use its loopback interface", strings.Join(f.NetworkInterfaces, ",")))
			break
		}
	}
	return notes
}

// tunesSearch says that there are settings of --autotune.
func (f *flags) tunesSearch() bool {
	return f.AutotuneLogFile != "" || f.AutotuneWarmupSamples != nil || f.AutotuneStepsPerSample != nil || f.AutotuneBayesOptMaxSamples != nil || f.AutotuneGaussianProcessNoise != nil
}

// separate takes lists apart that were given as one.
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

// variableName is what a shell takes for one.
var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// launchers are the variables that tell a process its place, which options cannot.
var launchers = lazyregexp.New(`^(_?HOROVOD_SECRET_KEY|HOROVOD_(HOSTNAME|RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|GLOO_RENDEZVOUS_ADDR|GLOO_RENDEZVOUS_PORT)|GOROVOD_(RENDEZVOUS_ADDRS|ELASTIC_DRIVER|ELASTIC_WORKER|RESULT_FD))$`)

// controllers are the variables that choose MPI: to meet, and to carry the data.
var controllers = []string{"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}

// chooseController lets the variables choose, of -x or of the launcher's environment, where
// no option and no file has.
func (f *flags) chooseController(getenv func(string) string) {
	if f.MPI || f.Gloo {
		return
	}
	for _, name := range controllers {
		value := getenv(name)
		for _, x := range f.Export {
			if v, ok := strings.CutPrefix(x, name+"="); ok {
				value = v
			}
		}
		if !strings.EqualFold(value, "mpi") {
			continue
		}
		switch {
		case f.elastic():
			f.warnings = append(f.warnings, name+"="+value+" does not count: MPI cannot carry an elastic job")
		case f.Input != "" || f.Results != "":
			f.warnings = append(f.warnings, name+"="+value+" does not count: horovod.run hands functions to processes that this launcher starts itself")
		default:
			f.MPI, f.mpiByVariable = true, true
			f.warnings = append(f.warnings, name+"="+value+" is set: this job is started as with --mpi; --gloo overrides it")
		}
		return
	}
}

// checkFiles refuses files that ssh would miss, with a warning only, on each host. A name
// that ssh itself completes is left to it.
func (f *flags) checkFiles() error {
	if name := f.SSHIdentityFile; name != "" && !strings.HasPrefix(name, "~") && !strings.Contains(name, "%") {
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("--ssh-identity-file: %w", err)
		}
	}
	return nil
}

func (f *flags) checkSSHPort() error {
	if p := f.SSHPort; p != nil && (*p < 1 || *p > 65535) {
		return fmt.Errorf("--ssh-port %d: a number from 1 to 65535 is needed", *p)
	}
	return nil
}

// environ is what processes get of the launcher's environment, with what the
// options say.
func (f *flags) environ(own []string) []string {
	env := f.tune(exportable(own))
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
		env = setenv(env, name, value)
	}
	return env
}

// startTimeout is how long hosts may take to be connected.
func (f *flags) startTimeout() time.Duration {
	if f.StartTimeout == nil {
		return defaultStartTimeout
	}
	return time.Duration(*f.StartTimeout) * time.Second
}

// tune returns env with what the options say for the processes.
func (f *flags) tune(env []string) []string {
	set := func(name, value string) { env = setenv(env, name, value) }
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
	// There is one wait in hvd.init(), so both options set it; upstream's
	// own name for it wins.
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
		set("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", strconv.FormatFloat(*f.AutotuneGaussianProcessNoise, 'g', -1, 64))
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
