package launch

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/ending"
)

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
