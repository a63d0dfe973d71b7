package flags

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
)

func TestSplitFindsTheCommand(t *testing.T) {
	for _, c := range []struct {
		args    string
		np      int
		command string
	}{
		{"-np 2 python train.py -np 7", 2, "python train.py -np 7"},
		{"-np=2 python", 2, "python"},
		{"--num-proc=2 python --verbose", 2, "python --verbose"},
		{"--np 3 -- -weird command", 3, "-weird command"},
		{"--verbose -np 2 -H localhost:2 python -H x", 2, "python -H x"},
		{"-H=localhost:2 -np 2 a", 2, "a"},
		{"-np 2 --gloo -prefix-timestamp a --autotune", 2, "a --autotune"},
		{"-np 2 -", 2, "-"},
		{"--dashboard -np 2 a", 2, "a"},
		{"-np 2 --dashboard 9500", 2, "9500"},
		{"-np 2 --dashboard=9500 a", 2, "a"},
	} {
		f, err := Parse("horovodrun", strings.Fields(c.args))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if got := strings.Join(f.Command, " "); f.NumProc != c.np || got != c.command {
			t.Errorf("%s: %d × %q", c.args, f.NumProc, got)
		}
	}
}

// TestDashboardTakesItsAddressAfterASign checks that --dashboard reads an address only after "=", and not from the
// command.
func TestDashboardTakesItsAddressAfterASign(t *testing.T) {
	for args, want := range map[string]string{"-np 2 --dashboard a": AnyPort, "-np 2 --dashboard=9500 a": "9500",
		"-np 2 --dashb=[::1]:0 a": "[::1]:0", "-np 2 a": ""} {
		f, err := Parse("horovodrun", strings.Fields(args))
		if err != nil || f.Dashboard != want {
			t.Errorf("%s: %q, %v", args, f.Dashboard, err)
		}
	}
	f, err := Parse("horovodrun", strings.Fields("-np 2 --dashboard 9500 python x"))
	if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "write --dashboard=9500") {
		t.Errorf("%q, %v", f.Warnings, err)
	}
}

func TestBadArguments(t *testing.T) {
	for args, says := range map[string]string{
		"":                                   "-np is missing",
		"python x":                           "-np is missing",
		"-np":                                "-np: a value is missing",
		"-np 0 true":                         "at least 1",
		"-np -1 true":                        "-np -1: at least 1",
		"-np two true":                       `-np two: a whole number is needed`,
		"-np 99999999999999999999 true":      "99999999999999999999",
		"-np 2":                              "no command",
		"-np 2 --":                           "no command",
		"-np 2 --nonsense x":                 "--nonsense",
		"-np 2 --dashboard= x":               "its value is empty",
		"-np 2 -H localhost:2 -hostfile f x": "can't be used together",
		"-np 2 --log-level loud x":           "--log-level loud",
		"-np 2 --cache-capacity -1 x":        "--cache-capacity -1",
		"-np 2 --cache-capacity 65537 x":     "--cache-capacity 65537",
		"-np 2 --fusion-threshold-mb=-1 x":   "--fusion-threshold-mb -1",
		"-np 2 --gloo-timeout-seconds 0 x":   "--gloo-timeout-seconds 0",
		"-np 2 --start-timeout 0 x":          "--start-timeout 0",
		"-np 2 --cycle-time-ms -1 x":         "--cycle-time-ms -1",
		"-np 2 --cycle-time-ms nan x":        "--cycle-time-ms",
		"-np 2 --cycle-time-ms 60001 x":      "--cycle-time-ms 60001",
		"-np 2 --stall-check-warning-time-seconds 0 x":   "--stall-check-warning-time-seconds 0",
		"-np 2 --stall-check-shutdown-time-seconds -1 x": "--stall-check-shutdown-time-seconds -1",
		"-np 2 --autotune-gaussian-process-noise 2 x":    "--autotune-gaussian-process-noise 2",
		"-np 2 --autotune-steps-per-sample 0 x":          "--autotune-steps-per-sample 0",
		"-np 2 --grace-period -1 x":                      "--grace-period -1",
		"-np 2 --grace-period nan x":                     "--grace-period",
		"-np 2 -p x x":                                   "-p",
		"-np 2 --network-interfaces , x":                 "--network-interfaces: names",
		"-np 2 -p 65536 x":                               "--ssh-port 65536",
		"-np 2 -p 0 x":                                   "--ssh-port 0: a number from 1",
		"-np 2 -x HOROVOD_RANK=5 x":                      "-x HOROVOD_RANK: the launcher sets",
		"-np 2 -x 7=3 x":                                 "-x 7",
		"-np 2 --num-nccl-streams -1 x":                  "--num-nccl-streams -1",
		"-np 2 --mpi-args=--oversubscribe x":             "--mpi-args is for jobs that mpirun starts",
		"-np 2 --binding-args=-bind-to x":                "--binding-args is for jobs that mpirun starts",
		"-np 2 --mpi --gloo x":                           "--gloo and --mpi",
		"-np 2 --mpi --min-np 1 x":                       "elastic",
		"-np 2 --min-np 0 x":                             "--min-np 0",
		"-np 2 --min-np 3 x":                             "--min-np 3 is above -np 2",
		"-np 2 --min-np 1 --max-np 1 x":                  "--max-np 1 is below -np 2",
		"-np 2 --max-np 4 x":                             "--min-np, --host-discovery-script or --nnodes MIN:MAX",
		"-np 2 --reset-limit 4 x":                        "--reset-limit is for elastic jobs",
		"-np 2 --min-np 1 --reset-limit -1 x":            "--reset-limit -1",
		"-np 2 --min-np 1 --elastic-timeout 0 x":         "--elastic-timeout 0",
		"-np 2 --min-np 1 --slots-per-host 0 x":          "--slots-per-host 0",
		"-np 2 --min-np 1 --blacklist-cooldown-range 1":  "two numbers of seconds",
		"-np 2 --min-np 1 --blacklist-cooldown-range 5 x": "--blacklist-cooldown-range 5 x: two numbers of " +
			"seconds are needed",
		"-np 2 --min-np 1 --blacklist-cooldown-range=5 x": "--blacklist-cooldown-range 5: two numbers of " +
			"seconds are needed",
		"-np 2 --min-np 1 --blacklist-cooldown-range 0 5 x":    "1 to 3600",
		"-np 2 --min-np 1 --blacklist-cooldown-range 5 4 x":    "1 to 3600",
		"-np 2 --min-np 1 --blacklist-cooldown-range 5 3601 x": "1 to 3600",
		"-np 2 --host-discovery-script ./d -H a:2 x":           "--host-discovery-script",
	} {
		_, err := Parse("horovodrun", strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", args, err, says)
		}
	}
}

// Every option that Horovod has is either obeyed or refused with a reason;
// "unknown flag" would be wrong for all of them.
func TestEveryOptionOfHorovodIsKnown(t *testing.T) {
	upstream := strings.Fields(`-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout
		--network-interfaces --network-interface --output-filename --verbose --config-file -p --ssh-port -i
		--ssh-identity-file --fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce
		--no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather --torus-allreduce
		--no-torus-allreduce --autotune --no-autotune --autotune-log-file --autotune-warmup-samples
		--autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np
		--min-num-proc --max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit
		--blacklist-cooldown-range --timeline-filename --timeline-mark-cycles --no-timeline-mark-cycles
		--no-stall-check --stall-check --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds
		--mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams
		--thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp
		-prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts
		-hostfile --hostfile --host-discovery-script --gloo --mpi --jsrun`)
	values := map[string]string{"-np": "2", "--num-proc": "2", "--start-timeout": "5", "--output-filename": "d",
		"--fusion-threshold-mb": "1", "--cache-capacity": "1", "--gloo-timeout-seconds": "1", "--cycle-time-ms": "2.5",
		"--timeline-filename":                "t.json",
		"--stall-check-warning-time-seconds": "5", "--stall-check-shutdown-time-seconds": "0",
		"--autotune-log-file": "f", "--autotune-warmup-samples": "0", "--autotune-steps-per-sample": "1",
		"--autotune-bayes-opt-max-samples": "1", "--autotune-gaussian-process-noise": "0.5", "--log-level": "INFO",
		"--network-interface": "lo", "-p": "22", "--ssh-port": "22", "-i": "f", "--ssh-identity-file": "f",
		"--config-file": "/dev/null", "--num-nccl-streams": "1", "--thread-affinity": "0",
		"--network-interfaces": "eth0,lo", "-H": "localhost:2", "--hosts": "localhost:2", "-hostfile": "f",
		"--hostfile": "f",
		"--min-np":   "1", "--min-num-proc": "1", "--max-np": "3", "--max-num-proc": "3", "--slots-per-host": "2",
		"--elastic-timeout": "9", "--reset-limit": "0",
		"--blacklist-cooldown-range": "1,2", "--host-discovery-script": "./d", "--mpi-args": "-v",
		"--binding-args": "-v"}
	for _, option := range upstream {
		args := []string{option}
		if v, ok := values[option]; ok {
			args = append(args, v)
		}
		if option != "-np" && option != "--num-proc" {
			args = append(args, "-np", "2")
		}
		switch option {
		case "--max-np", "--max-num-proc", "--slots-per-host", "--elastic-timeout", "--reset-limit", cooldownOption:
			args = append(args, "--min-np", "1")
		case "--mpi-args", "--binding-args":
			args = append(args, "--mpi")
		}
		f, err := Parse("horovodrun", append(args, "cmd", "arg"))
		switch {
		case err != nil && !strings.Contains(err.Error(), option+" is not supported by this version: "):
			t.Errorf("%s: %v", option, err)
		case err == nil && !slices.Equal(f.Command, []string{"cmd", "arg"}):
			t.Errorf("%s: the command is %q", option, f.Command)
		}
	}
}

func TestHintsReachTheEnvironment(t *testing.T) {
	f, err := Parse("horovodrun", strings.Fields("-np 2 --hierarchical-allreduce --no-hierarchical-allgather x"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"HOROVOD_HIERARCHICAL_ALLREDUCE=1", "HOROVOD_HIERARCHICAL_ALLGATHER=0"}
	if got := f.tune(nil); !slices.Equal(got, want) { // --torus-allreduce sets nothing
		t.Errorf("got %q, want %q", got, want)
	}
	if f, err = Parse("horovodrun", strings.Fields("-np 2 --no-torus-allreduce x")); err != nil {
		t.Fatal(err)
	}
	if got := f.tune(nil); !slices.Equal(got, []string{"HOROVOD_TORUS_ALLREDUCE=0"}) {
		t.Errorf("got %q", got)
	}
}

func TestTunablesReachTheEnvironment(t *testing.T) {
	f, err := Parse("horovodrun", strings.Fields(
		"-np 2 --fusion-threshold-mb 3 --cache-capacity 7 --start-timeout 11 --gloo-timeout-seconds 12 --log-level "+
			"DEBUG --grace-period 0.5 x"))
	if err != nil {
		t.Fatal(err)
	}
	got := f.tune([]string{"A=1", "HOROVOD_CACHE_CAPACITY=99"})
	want := []string{"A=1", "HOROVOD_FUSION_THRESHOLD=3145728", "HOROVOD_CACHE_CAPACITY=7",
		"HOROVOD_GLOO_TIMEOUT_SECONDS=12", "HOROVOD_LOG_LEVEL=DEBUG"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if f.Grace() != 500*time.Millisecond {
		t.Errorf("grace %v", f.Grace())
	}
	for _, bad := range []string{"x", "0"} {
		t.Setenv("HOROVOD_START_TIMEOUT", bad)
		if _, err := Parse("horovodrun", strings.Fields("-np 2 x")); err == nil {
			t.Errorf("HOROVOD_START_TIMEOUT=%s is accepted", bad)
		}
	}
	t.Setenv("HOROVOD_START_TIMEOUT", "")
	if f, err = Parse("horovodrun", strings.Fields("-np 2 x")); err != nil || len(f.tune(nil)) > 0 {
		t.Errorf("an empty variable: %v", err)
	}
	t.Setenv("HOROVOD_START_TIMEOUT", "17")
	if f, err = Parse("horovodrun", strings.Fields("-np 2 x")); err != nil {
		t.Fatal(err)
	}
	if got := f.tune(nil); !slices.Equal(got, []string{"HOROVOD_GLOO_TIMEOUT_SECONDS=17"}) {
		t.Errorf("got %q", got)
	}
}

// The engine reads the settings of the options, under the names that it knows.
func TestReportOptionsReachTheEngine(t *testing.T) {
	for args, want := range map[string]func(*config.Config) bool{
		"--cycle-time-ms 2.5": func(c *config.Config) bool {
			return c.CycleTime == 2500*time.Microsecond
		},
		"--cycle-time-ms=0":          func(c *config.Config) bool { return c.CycleTime == 0 },
		"--timeline-filename /t/x y": func(c *config.Config) bool { return c.Timeline == "/t/x" },
		"--timeline-filename=DYNAMIC": func(c *config.Config) bool {
			return c.Timeline == config.TimelineDynamic
		},
		"--timeline-mark-cycles":    func(c *config.Config) bool { return c.TimelineMarkCycles },
		"--no-timeline-mark-cycles": func(c *config.Config) bool { return !c.TimelineMarkCycles },
		"--no-stall-check":          func(c *config.Config) bool { return c.StallCheckDisable },
		"--stall-check":             func(c *config.Config) bool { return !c.StallCheckDisable },
		"--stall-check-warning-time-seconds 7": func(c *config.Config) bool {
			return c.StallCheckTime == 7*time.Second
		},
		"--stall-check-shutdown-time-seconds 70": func(c *config.Config) bool {
			return c.StallShutdownTime == 70*time.Second
		},
		"--autotune --autotune-log-file=/t/l --autotune-warmup-samples 4 --autotune-steps-per-sample 5 " +
			"--autotune-bayes-opt-max-samples 6 --autotune-gaussian-process-noise 0.25": func(c *config.Config) bool {
			return c.Autotune == config.Autotune{On: true, Log: "/t/l", Warmup: 4, Steps: 5, Points: 6, Noise: 0.25}
		},
		"--verbose": func(c *config.Config) bool {
			return c.TimelineMarkCycles && c.StallCheckDisable && c.CycleTime == time.Second
		},
		"--log-with-timestamp":     func(c *config.Config) bool { return !c.LogHideTime },
		"--no-log-hide-timestamp":  func(c *config.Config) bool { return !c.LogHideTime },
		"--log-without-timestamp":  func(c *config.Config) bool { return c.LogHideTime },
		"--log-hide-timestamp":     func(c *config.Config) bool { return c.LogHideTime },
		"--cache-capacity 3 --tcp": func(c *config.Config) bool { return c.LogHideTime },
		"--stall-check --no-timeline-mark-cycles --gloo": func(c *config.Config) bool {
			return !c.TimelineMarkCycles && !c.StallCheckDisable
		},
	} {
		f, err := Parse("horovodrun", append(strings.Fields("-np 2 "+args), "x"))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		// These variables contradict most of the options.
		env := []string{"HOROVOD_CYCLE_TIME=1000", "HOROVOD_TIMELINE=t", "HOROVOD_TIMELINE_MARK_CYCLES=1",
			"HOROVOD_STALL_CHECK_DISABLE=1", "HOROVOD_LOG_HIDE_TIME=1"}
		if slices.Contains([]string{"--timeline-mark-cycles", "--no-stall-check", "--log-without-timestamp",
			"--log-hide-timestamp"}, args) {
			env = nil
		}
		values := make(map[string]string)
		for _, e := range f.tune(env) {
			name, value, _ := strings.Cut(e, "=")
			values[name] = value
		}
		c, err := config.Load(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
		if err != nil || !want(c) {
			t.Errorf("%s: error %v, %+v", args, err, c)
		}
	}
}

// Options that are hints are accepted, with a note if they change nothing.
func TestHintsAreNoted(t *testing.T) {
	for args, want := range map[string]string{
		"":                        "",
		"--network-interfaces lo": "",
		"--network-interfaces eth0,lo --network-interface ib0": "--network-interfaces eth0,lo,ib0: all processes run " +
			"on this host and use its loopback interface",
		"--disable-cache": "--disable-cache: no results of checks are cached, so there is nothing to disable",
		"--tcp": "--tcp: all processes run on this host and use its shared memory; GOROVOD_TRANSPORT=tcp " +
			"makes them use TCP",
	} {
		f, err := Parse("horovodrun", append(strings.Fields("-np 2 "+args), "x"))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := strings.Join(f.Notes(false), "; "); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
		if env := f.tune(nil); len(env) > 0 {
			t.Errorf("%s: it sets %q", args, env)
		}
	}
}

// Values that no rank would take are refused, although the launcher sets these variables anew for its ranks.
func TestTheEnvironmentChoosesNonsense(t *testing.T) {
	for _, args := range []string{"-np 2", "-np 2 --min-np 1", "-np 2 --gloo", "-np 2 --mpi", "--nnodes 1"} {
		for variable, says := range map[string]string{
			"HOROVOD_CPU_OPERATIONS=ccl": "HOROVOD_CPU_OPERATIONS=ccl: there is no oneCCL backend",
			"HOROVOD_CPU_OPERATIONS=glo": "HOROVOD_CPU_OPERATIONS=glo",
			"HOROVOD_CONTROLLER=nccl":    "HOROVOD_CONTROLLER=nccl",
		} {
			name, value, _ := strings.Cut(variable, "=")
			for _, how := range []string{"environment", "-x"} {
				t.Setenv("HOROVOD_CONTROLLER", "")
				t.Setenv("HOROVOD_CPU_OPERATIONS", "")
				more := ""
				if how == "-x" {
					more = " -x " + variable
				} else {
					t.Setenv(name, value)
				}
				_, err := Parse("horovodrun", append(strings.Fields(args+more), "x"))
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %s by %s: %v", args, variable, how, err)
				}
			}
		}
	}
}

// The environment's choice of MPI counts, or a message says why not.
func TestTheEnvironmentChoosesMPI(t *testing.T) {
	for _, c := range []struct {
		env, args string
		mpi       bool
		warning   string
	}{
		{"HOROVOD_CONTROLLER=mpi", "", true, "as with --mpi"},
		{"HOROVOD_CPU_OPERATIONS=MPI", "", true, "as with --mpi"},
		{"HOROVOD_CONTROLLER=gloo", "", false, ""},
		{"HOROVOD_CONTROLLER=mpi", "--gloo", false, ""},
		{"HOROVOD_CONTROLLER=mpi", "--mpi", true, ""},
		{"HOROVOD_CONTROLLER=mpi", "-x HOROVOD_CONTROLLER=gloo", false, ""},
		{"HOROVOD_CONTROLLER=", "-x HOROVOD_CONTROLLER=mpi", true, "as with --mpi"},
		{"HOROVOD_CONTROLLER=mpi", "--min-np 1", false, "elastic"},
		{"HOROVOD_CONTROLLER=mpi", "--input f", false, "horovod.run"},
		{"HOROVOD_CONTROLLER=", "-x GOROVOD_TEST_UNSET", false, "-x GOROVOD_TEST_UNSET: it is not set"},
		{"HOROVOD_CONTROLLER=", "-x HOROVOD_CONTROLLER", false, ""},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			t.Setenv("HOROVOD_CONTROLLER", "")
			t.Setenv("HOROVOD_CPU_OPERATIONS", "")
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			f, err := Parse("horovodrun", append(strings.Fields("-np 2 "+c.args), "x"))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(f.Warnings, "; "); f.MPI != c.mpi || !strings.Contains(got, c.warning) ||
				(c.warning == "") != (got == "") {
				t.Errorf("MPI %v, warnings %q", f.MPI, got)
			}
		})
	}
}

func TestAMissingIdentityFile(t *testing.T) {
	for name, ok := range map[string]bool{"": true, os.Args[0]: true, "~/x": true, "/x/%h": true, "/nonexist": false} {
		if err := (&Flags{SSHIdentityFile: name}).CheckFiles(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
