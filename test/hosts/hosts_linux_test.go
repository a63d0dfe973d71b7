// Package hosts tests jobs over several hosts: network namespaces, each with an sshd.
// The test binary is all programs: the launcher, the agents, the supervisors and the
// ranks' programs.
package hosts

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch"
	"github.com/gorovod/gorovod/test/cluster"
)

// programVariable makes the test binary a program that ranks run.
const programVariable = "GOROVOD_HOSTS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch {
	case name == "horovodrun" || name == "gorovod" || name == "gorovod-supervisor" || len(os.Args) == 2 &&
		os.Args[1] == "agent":
		os.Exit(launch.Main(os.Args))
	case os.Getenv(programVariable) != "":
		os.Exit(programs[os.Getenv(programVariable)]())
	}
	if flag.Parse(); testing.Short() {
		return // making clusters takes too long for -short
	}
	os.Exit(m.Run())
}

// testCluster is a cluster. The test binary is its launcher, on h0, and its agents.
type testCluster struct {
	*cluster.Cluster
	t                   testing.TB
	horovodrun, gorovod string
}

// newCluster makes n hosts; options are lines for the sshds' configuration.
func newCluster(t testing.TB, n int, options ...string) *testCluster {
	t.Helper()
	c := &testCluster{Cluster: cluster.New(t, n, options...), t: t}
	c.horovodrun, c.gorovod = c.File("horovodrun"), c.File("gorovod")
	for _, link := range []string{c.horovodrun, c.gorovod} {
		if err := os.Symlink(self(), link); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// job is one horovodrun on h0.
type job struct {
	*exec.Cmd
	t              testing.TB
	stdout, stderr bytes.Buffer
	read           chan struct{} // closed when the reader of until is at the end
	over           chan struct{} // closed when a job of lose has ended
}

// run prepares horovodrun; env adds to its environment.
func (c *testCluster) run(env []string, args ...string) *job {
	j := &job{t: c.t, Cmd: c.Hosts[0].Command(context.Background(), c.horovodrun, args...)}
	j.WaitDelay = time.Second // even if a process holds its output open
	j.Env = append(os.Environ(), "GOROVOD_SSH="+c.SSH(), "GORACE=atexit_sleep_ms=0")
	j.Env = append(j.Env, env...)
	j.Stdout, j.Stderr = &j.stdout, &j.stderr
	return j
}

// does returns the environment in which the test binary runs a program.
func does(program string, env ...string) []string { return append(env, programVariable+"="+program) }

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// expect runs the job to its end, at most a minute, and checks it as ended does.
func (j *job) expect(code int, says ...string) {
	j.t.Helper()
	stop := time.AfterFunc(time.Minute, func() { j.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	j.Run()
	j.ended(code, says...)
}

// anyFailure stands for every exit code but 0: some launchers do not pass on the exit code of a rank.
const anyFailure = -2

// ended checks the job's exit code, and that its output matches each of the regular expressions.
func (j *job) ended(code int, says ...string) {
	j.t.Helper()
	if got := j.ProcessState.ExitCode(); got != code && (code != anyFailure || got < 1) {
		j.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, text := range says {
		if !regexp.MustCompile(text).Match(j.stderr.Bytes()) {
			j.t.Errorf("stderr does not say %q", text)
		}
	}
	if j.t.Failed() {
		j.t.Fatalf("stdout:\n%s\nstderr:\n%s", &j.stdout, &j.stderr)
	}
}
