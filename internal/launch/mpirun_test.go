package launch

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
)

func TestMPILaunchers(t *testing.T) {
	for text, want := range map[string]mpiLauncher{
		"mpirun (Open MPI) 4.1.4\n\nReport bugs":                                   openMPILauncher,
		"mpirun (OpenRTE) 2.1":                                                     openMPILauncher,
		"IBM Spectrum MPI 10.3, which also says Open MPI":                          spectrumLauncher,
		"HYDRA build details:\n    Version:                                 4.0.2": hydraLauncher,
		"Intel(R) MPI Library for Linux* OS, Version 2021.9":                       intelLauncher,
	} {
		if got, err := mpiLauncherOf(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := mpiLauncherOf("prun 1.0"); err == nil || !strings.Contains(err.Error(), `"prun 1.0"`) {
		t.Errorf("got %v", err)
	}
}

func TestMPICommand(t *testing.T) {
	many := make([]placement.Host, manyHosts)
	for i := range many {
		many[i] = placement.Host{Name: "h", Slots: 1}
	}
	hosts := []placement.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
	for _, c := range []struct {
		launcher mpiLauncher
		args     string
		hosts    []placement.Host
		want     string // part of the command, or of the error
	}{
		{openMPILauncher, "-np 3", hosts, "mpirun --allow-run-as-root --tag-output -np 3 -H a:2,b:2 --bind-to none " +
			"--map-by slot --mca pml ob1 --mca btl ^openib --mca btl_tcp_if_exclude lo,docker0,virbr0 -x A " +
			"-x B prog arg"},
		{openMPILauncher, "-np 3", hosts[:1], "--mca btl ^openib -x A"},
		{openMPILauncher, "-np 3 --mpi-args=-mca~btl_tcp_if_include~eth0", hosts,
			"--mca btl ^openib -x A -x B -mca btl_tcp_if_include eth0"},
		{openMPILauncher, "-np 3 -p 22 -i k --network-interfaces x,y --output-filename d " +
			"--prefix-output-with-timestamp", hosts, "--mca plm_rsh_args -p 22 -i k --mca btl_tcp_if_include x,y " +
			"--output-filename d --timestamp-output -x A"},
		{openMPILauncher, "-np 3 --mpi-args=--oversubscribe --binding-args=-bind-to~core", many,
			"-bind-to core --mca pml ob1 --mca btl ^openib --mca plm_rsh_no_tree_spawn true --mca " +
				"plm_rsh_num_concurrent 64 --mca btl_tcp_if_exclude lo,docker0,virbr0 -x A -x B " +
				"--oversubscribe prog arg"},
		{spectrumLauncher, "-np 3 --tcp", hosts, "-H a:2,b:2 --bind-to socket --map-by socket --rank-by " +
			"core -tcp -x A"},
		// and a variable
		{hydraLauncher, "-np 3 -p 22", hosts, "mpirun -l -np 3 -ppn 2 -hosts a,b -bootstrap=ssh -genvlist " +
			"A,B prog arg"},
		{intelLauncher, "-np 3 -p 22 --network-interfaces x --output-filename d", hosts,
			"mpirun -l -np 3 -ppn 2 -hosts a,b -bootstrap=ssh -bootstrap-exec-args -p 22 -iface x -outfile-pattern d " +
				"-genvlist A,B prog arg"},
		{hydraLauncher, "-np 3", []placement.Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 2}}, "1 on a and 2 on b"},
		{hydraLauncher, "-np 3 --network-interfaces x,y", hosts, "not x,y"},
		{hydraLauncher, "-np 3 --prefix-output-with-timestamp", hosts, "no time"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		f, err := flags.Parse("horovodrun", append(append([]string{"--mpi"}, args...), "prog", "arg"))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		words, err := mpirunCommand(f, c.launcher, c.hosts, []string{"B=secret", "A=1"})
		got := strings.Join(words, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s,\nwant %s", c.args, got, c.want)
		}
	}
}

// MPICH's mpirun gets the options for its ssh, and the user's own, by a variable. A note says that GOROVOD_SSH has no
// effect.
func TestSSHOptionsReachMPICH(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'HYDRA build details:'; exit; }\necho " +
		"\"$HYDRA_LAUNCHER_EXTRA_ARGS\"\n"
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "--mpi", "-np", "2", "-p", "2222", "-i", "/dev/null", "prog")
	c.Args[0] = "horovodrun"
	c.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "HYDRA_LAUNCHER_EXTRA_ARGS=-v", "GOROVOD_SSH=ssh -F f"}
	var says strings.Builder
	c.Stderr = &says
	out, err := c.Output()
	if err != nil || string(out) != "-v -p 2222 -i /dev/null\n" || !strings.Contains(says.String(),
		"GOROVOD_SSH: it has no effect with --mpi") {
		t.Errorf("%v: %q, %q", err, out, says.String())
	}
}

// horovodrun --mpi becomes the mpirun of the PATH.
func TestBecomesMpirun(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit; }\necho " +
		"$HOROVOD_CONTROLLER $HOROVOD_CPU_OPERATIONS \"$@\"; exit 7\n"
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, how := range []struct{ variables, option, carries string }{
		{"", "--mpi", "mpi mpi"},
		{"HOROVOD_CONTROLLER=gloo", "--mpi", "mpi mpi"},
		{"HOROVOD_CONTROLLER=mpi", "--verbose", "mpi mpi"},
		{"HOROVOD_CPU_OPERATIONS=mpi", "--verbose", "mpi mpi"},
		{"HOROVOD_CONTROLLER=mpi HOROVOD_CPU_OPERATIONS=gloo", "--verbose", "mpi gloo"},
	} {
		c := exec.Command(os.Args[0], "-np", "2", how.option, "prog", "arg")
		c.Args[0] = "horovodrun"
		c.Env = append(strings.Fields(how.variables), "PATH="+dir+":/usr/bin:/bin")
		out, err := c.Output()
		if code := c.ProcessState.ExitCode(); code != 7 || !strings.HasPrefix(string(out),
			how.carries+" --allow-run-as-root") || !strings.HasSuffix(string(out), "prog arg\n") {
			t.Errorf("%+v: exit code %d, %v: %s", how, code, err, out)
		}
	}
}

// The ranks of horovodrun --mpi get the variables by which rank 0 shows the job, or horovodrun refuses what rank 0
// could not open. The command line has names alone.
func TestRankZeroOfMpirunShowsTheJob(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit; }\n" +
		"echo $GOROVOD_METRICS $GOROVOD_DASHBOARD $GOROVOD_METRICS_TOKEN ; echo \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	const token = "GOROVOD_METRICS_TOKEN=0123456789abcdef"
	for _, c := range []struct {
		env, args string
		values    string // of the three variables
		names     string // in mpirun's arguments
		refusal   string
	}{
		{"", "--metrics-port=0", "0", "-x GOROVOD_METRICS ", ""},
		{"", "--dashboard", "0", "-x GOROVOD_DASHBOARD ", ""},
		{"GOROVOD_METRICS=127.0.0.1:0", "", "127.0.0.1:0", "-x GOROVOD_METRICS ", ""},
		{"GOROVOD_METRICS=nonsense", "-x GOROVOD_METRICS=0 -x " + token, "0 0123456789abcdef",
			"-x GOROVOD_METRICS -x GOROVOD_METRICS_TOKEN ", ""},
		{"GOROVOD_METRICS=nonsense " + token, "--metrics-port=0.0.0.0:0 --dashboard=0", "0.0.0.0:0 0 0123456789abcdef",
			"-x GOROVOD_DASHBOARD -x GOROVOD_METRICS -x GOROVOD_METRICS_TOKEN ", ""},
		{token, "", "", "", ""}, // nobody is to see the job
		{"", "--metrics-port=x", "", "", `--metrics-port: "x": PORT or HOST:PORT is needed`},
		{"", "--metrics-port=" + port, "", "", "--metrics-port " + port + ": listen tcp"},
		{"", "--dashboard=0.0.0.0:0", "", "", "--dashboard 0.0.0.0:0: other hosts can reach this address: give"},
		{"", "-x GOROVOD_TLS=1 -x " + token + " --dashboard=0.0.0.0:0", "", "", "give a certificate"},
		{"GOROVOD_METRICS_TOKEN_FILE=/dev/null", "--dashboard", "", "", "/dev/null is not a regular file"},
		// There rank 0 reads the file, and opens the port.
		{"GOROVOD_METRICS_TOKEN_FILE=/dev/null", "-H 192.0.2.1:2 --metrics-port=" + port, port, "-x GOROVOD_METRICS ",
			""},
		{"", "-H 192.0.2.1:2 --metrics-port=x", "", "", "PORT or HOST:PORT is needed"},
	} {
		run := exec.Command(os.Args[0], append(append([]string{"--mpi", "-np", "2"}, strings.Fields(c.args)...),
			"prog")...)
		run.Args[0] = "horovodrun"
		run.Env = append(strings.Fields(c.env), "PATH="+dir+":/usr/bin:/bin")
		var says strings.Builder
		run.Stderr = &says
		out, err := run.Output()
		if c.refusal != "" {
			if run.ProcessState.ExitCode() != ending.UsageCode || !strings.Contains(says.String(), c.refusal) {
				t.Errorf("%s %s: %v: %s", c.env, c.args, err, says.String())
			}
			continue
		}
		values, arguments, _ := strings.Cut(string(out), "\n")
		if err != nil || values != c.values || !strings.Contains(arguments, c.names) ||
			strings.Contains(arguments, "0123456789abcdef") ||
			strings.Contains(arguments, "GOROVOD_METRICS_TOKEN ") != strings.Contains(c.names, "TOKEN") {
			t.Errorf("%s %s: %v: %q, %s%s", c.env, c.args, err, values, arguments, says.String())
		}
	}
}

// A note names the options that mpirun has no use for.
func TestNotesOnMPIOptions(t *testing.T) {
	f, err := flags.Parse("horovodrun", strings.Fields("-np 2 --mpi --tcp --grace-period 1 --remote-command g "+
		"--disable-cache x"))
	if err != nil {
		t.Fatal(err)
	}
	if n, spectrum := len(mpiNotes(f, openMPILauncher)), len(mpiNotes(f, spectrumLauncher)); n != 4 || spectrum != 3 {
		t.Errorf("%d notes for Open MPI, %d for IBM's, which has --tcp", n, spectrum)
	}
}
