// Package mpirun has the mpirun of Open MPI, MPICH, Intel or IBM start a job: it translates horovodrun's options, and
// becomes that program.
package mpirun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/observe/dashboard"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/metrics"
)

// launcher is a kind of mpirun, according to its options.
type launcher int

const (
	openMPILauncher  launcher = iota + 1
	spectrumLauncher          // IBM's Open MPI
	hydraLauncher             // MPICH's
	intelLauncher             // Intel's variant of Hydra
)

// launcherOf recognises an mpirun by the output of mpirun --version.
func launcherOf(version string) (launcher, error) {
	for _, known := range []struct {
		text     string
		launcher launcher
	}{
		{"IBM Spectrum MPI", spectrumLauncher}, {"Open MPI", openMPILauncher}, {"OpenRTE", openMPILauncher},
		{"MPICH", hydraLauncher}, {"HYDRA", hydraLauncher}, {"Intel(R) MPI", intelLauncher},
	} {
		if strings.Contains(version, known.text) {
			return known.launcher, nil
		}
	}
	first, _, _ := strings.Cut(version, "\n")
	return 0, fmt.Errorf("mpirun is of no MPI that is known here (Open MPI, IBM Spectrum MPI, MPICH, Intel MPI): it "+
		"calls itself %q", first)
}

// manyHosts is how many hosts make this program turn off Open MPI's tree of ssh connections.
const manyHosts = 64

// command is the command that starts the job by MPI, with Horovod's arguments. The command runs in env. It passes
// variables on by name, so that no argument holds a value.
func command(f *flags.Flags, l launcher, hosts []placement.Host, env []string) ([]string, error) {
	names := make([]string, 0, len(env))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	options := optionsOfOpenMPI
	if l == hydraLauncher || l == intelLauncher {
		options = optionsOfHydra
	}
	words, err := options(f, l, hosts, names)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{"mpirun"}, words, strings.Fields(f.MPIArgs), f.Command), nil
}

// optionsOfHydra are the options for the mpirun of MPICH and Intel. names are the variables for all ranks.
func optionsOfHydra(f *flags.Flags, l launcher, hosts []placement.Host, names []string) (words []string, err error) {
	add := func(more ...string) { words = append(words, more...) }
	ssh, nics := sshOptions(f), strings.Join(f.NetworkInterfaces, ",")
	perHost := hosts[0].Slots
	var where []string
	for _, h := range hosts {
		if h.Slots != perHost {
			return nil, fmt.Errorf("MPICH's mpirun takes the same number of slots on all hosts, not %d on %s "+
				"and %d on %s", perHost, hosts[0].Name, h.Slots, h.Name)
		}
		where = append(where, h.Name)
	}
	add("-l", "-np", strconv.Itoa(f.NumProc), "-ppn", strconv.Itoa(perHost), "-hosts", strings.Join(where, ","))
	if ssh != "" {
		add("-bootstrap=ssh")
	}
	if ssh != "" && l == intelLauncher {
		add("-bootstrap-exec-args", ssh)
	}
	if len(f.NetworkInterfaces) > 1 {
		return nil, fmt.Errorf("MPICH's mpirun takes one network interface, not %s", nics)
	}
	if nics != "" {
		add("-iface", nics)
	}
	if f.OutputFilename != "" {
		add("-outfile-pattern", f.OutputFilename)
	}
	if f.PrefixTimestamp {
		return nil, errors.New("MPICH's mpirun puts no time before the lines of output: leave " +
			"--prefix-output-with-timestamp out")
	}
	if f.BindingArgs != "" {
		add(strings.Fields(f.BindingArgs)...)
	}
	add("-genvlist", strings.Join(names, ","))
	return words, nil
}

// optionsOfOpenMPI are the options for the mpirun of Open MPI and Spectrum MPI. names are the variables for all ranks.
func optionsOfOpenMPI(f *flags.Flags, l launcher, hosts []placement.Host, names []string) (words []string,
	err error) {
	add := func(more ...string) { words = append(words, more...) }
	ssh, nics := sshOptions(f), strings.Join(f.NetworkInterfaces, ",")
	where := make([]string, len(hosts))
	for i, h := range hosts {
		where[i] = fmt.Sprintf("%s:%d", h.Name, h.Slots)
	}
	add("--allow-run-as-root", "--tag-output", "-np", strconv.Itoa(f.NumProc), "-H", strings.Join(where, ","))
	switch {
	case f.BindingArgs != "":
		add(strings.Fields(f.BindingArgs)...)
	case l == spectrumLauncher:
		add("--bind-to", "socket", "--map-by", "socket", "--rank-by", "core")
	default:
		add("--bind-to", "none", "--map-by", "slot")
	}
	if l == spectrumLauncher {
		if f.TCP {
			add("-tcp")
		}
	} else {
		add("--mca", "pml", "ob1", "--mca", "btl", "^openib")
	}
	if len(hosts) >= manyHosts {
		add("--mca", "plm_rsh_no_tree_spawn", "true", "--mca", "plm_rsh_num_concurrent", strconv.Itoa(len(hosts)))
	}
	if ssh != "" {
		add("--mca", "plm_rsh_args", ssh)
	}
	switch {
	case nics != "":
		add("--mca", "btl_tcp_if_include", nics)
	case l == openMPILauncher && len(hosts) > 1 && !choosesInterfaces(f, names):
		add("--mca", "btl_tcp_if_exclude", bridgesOfAll)
	}
	if f.OutputFilename != "" {
		add("--output-filename", f.OutputFilename)
	}
	if f.PrefixTimestamp {
		add("--timestamp-output")
	}
	for _, name := range names {
		add("-x", name)
	}
	return words, nil
}

// sshOptions are the user's options for ssh.
func sshOptions(f *flags.Flags) string {
	var options []string
	if f.SSHPort != nil {
		options = append(options, "-p "+strconv.Itoa(*f.SSHPort))
	}
	if f.SSHIdentityFile != "" {
		options = append(options, "-i "+f.SSHIdentityFile)
	}
	return strings.Join(options, " ")
}

// hydraArgsVariable has arguments for the ssh of MPICH's mpirun, which takes none on its command line.
const hydraArgsVariable = "HYDRA_LAUNCHER_EXTRA_ARGS"

// bridgesOfAll are interfaces that have the same address on every host. On them Open MPI would wait for a neighbour for
// ever.
const bridgesOfAll = "lo,docker0,virbr0"

// choosesInterfaces reports whether the user tells Open MPI which interfaces to use, by an argument or a variable.
// names are those of the environment's variables.
func choosesInterfaces(f *flags.Flags, names []string) bool {
	return strings.Contains(f.MPIArgs, "btl_tcp_if_") || slices.ContainsFunc(names,
		func(name string) bool { return strings.HasPrefix(name, "OMPI_MCA_btl_tcp_if_") })
}

// allMPI lets MPI do everything. If the environment has chosen MPI, its own settings win.
func allMPI(f *flags.Flags, env []string) []string {
	for _, name := range flags.Controllers {
		said := slices.ContainsFunc(env,
			func(e string) bool { n, v, _ := strings.Cut(e, "="); return n == name && v != "" })
		if !f.MPIByVariable || !said {
			env = environment.Set(env, name, "mpi")
		}
	}
	return env
}

// letRankZeroShow returns the ranks' environment env with the variables by which rank 0 shows the job: the ranks of
// mpirun meet without this program (see package observer). It refuses what rank 0 could not open. here: rank 0 will be
// on this host; otherwise its files and ports are not checked.
func letRankZeroShow(f *flags.Flags, env []string, here bool) ([]string, error) {
	for _, page := range []struct{ value, option, variable string }{
		{f.MetricsPort, "--metrics-port", metrics.Variable}, {f.Dashboard, flags.DashboardOption, dashboard.Variable}} {
		address, said := f.Asked(page.value, page.option, page.variable)
		if address == "" {
			continue
		}
		env = environment.Set(env, page.variable, address)
		if token := f.Lookup(door.TokenVariable); token != "" {
			env = environment.Set(env, door.TokenVariable, token)
		}
		o, err := door.From(address, func(name string) string {
			if name == door.TokenFileVariable && !here {
				return ""
			}
			return environment.Get(env, name)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", said, err)
		}
		if !here {
			continue
		}
		l, _, err := o.Listen(1)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", said, address, err)
		}
		defer l.Close() // at the end, so that two pages at one port are refused
	}
	return env, nil
}

// notes describe options that mpirun does not have, or that change nothing in its jobs.
func notes(f *flags.Flags, l launcher) (notes []string) {
	for _, o := range []struct {
		name  string
		given bool
	}{{"--grace-period", f.GracePeriod != nil}, {"--remote-command", f.RemoteCommand != ""},
		{"--tcp", f.TCP && l != spectrumLauncher}, {"--num-nccl-streams", f.NumNCCLStreams != nil},
		{"--thread-affinity", f.ThreadAffinity != nil}, {"--disable-cache", f.DisableCache}} {
		if o.given {
			notes = append(notes, o.name+": it has no effect with --mpi, where mpirun starts the processes and MPI "+
				"carries the data")
		}
	}
	if os.Getenv(remote.SSHVariable) != "" {
		notes = append(notes, remote.SSHVariable+": it has no effect with --mpi, where mpirun has its own ways: "+
			"OMPI_MCA_plm_rsh_agent names another ssh to Open MPI, HYDRA_LAUNCHER_EXEC to MPICH")
	}
	return notes
}

// Run replaces this program by mpirun. It returns only an error.
func Run(f *flags.Flags) (code int, err error) {
	hosts, err := f.HostList()
	if err != nil {
		return ending.UsageCode, err
	}
	if _, err := placement.Assign(hosts, f.NumProc); err != nil {
		return ending.UsageCode, err
	}
	path, err := exec.LookPath("mpirun")
	if err != nil {
		return ending.UsageCode,
			fmt.Errorf("--mpi: mpirun is not installed: install Open MPI (package openmpi-bin) or "+
				"MPICH (mpich), or leave --mpi out, since MPI is not needed: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	version, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return ending.UsageCode, fmt.Errorf("%s --version: %w\n%s", path, err, version)
	}
	l, err := launcherOf(string(version))
	if err != nil {
		return ending.UsageCode, err
	}
	env, err := letRankZeroShow(f, allMPI(f, f.Environ(os.Environ())), placement.IsLocal(hosts[0].Name))
	if err != nil {
		return ending.UsageCode, err
	}
	words, err := command(f, l, hosts, env)
	if err != nil {
		return ending.UsageCode, err
	}
	if ssh := sshOptions(f); ssh != "" && l == hydraLauncher {
		env = environment.Set(env, hydraArgsVariable, strings.TrimSpace(os.Getenv(hydraArgsVariable)+" "+ssh))
	}
	for _, note := range notes(f, l) {
		logging.Print(slog.LevelWarn, "horovodrun", note)
	}
	if f.Verbose {
		logging.Print(slog.LevelInfo, "horovodrun", "starting "+strings.Join(words, " "))
	}
	return ending.UsageCode, fmt.Errorf("start %s: %w", path, syscall.Exec(path, words, env))
}
