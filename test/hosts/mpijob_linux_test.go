package hosts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/cluster"
)

// withEtc runs a command with the files of a directory in /etc/mpi, as in a launcher's pod. It uses a mount namespace
// with links in /etc.
const withEtc = `set -e
mount --make-rprivate /
mkdir -p "$1.etc"
mount --bind /etc "$1.etc"
mount -t tmpfs etc /etc
ln -s "$1.etc"/* /etc/
ln -s "$1" /etc/mpi
shift
exec "$@"`

// mpiJob lets horovodrun run as in an MPIJob's launcher. files are those that the operator writes.
func (c *testCluster) mpiJob(files map[string]string) {
	c.t.Helper()
	if err := os.Mkdir(c.File("mpi"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	for name, text := range files {
		c.Write("mpi/"+name, text)
	}
	c.Write("in-mpijob", "#!/bin/sh\nexec unshare --mount sh -c '"+withEtc+"' sh "+c.File("mpi")+" "+c.horovodrun+
		" \"$@\"\n")
	c.horovodrun = c.File("in-mpijob")
	if err := os.Chmod(c.horovodrun, 0o700); err != nil {
		c.t.Fatal(err)
	}
}

// ranks checks that all n ranks of a job, two on each host, have printed their line.
func (j *job) ranks(n int) {
	j.t.Helper()
	for r := range n {
		if place := fmt.Sprintf("all is right on rank %d of %d, %d of 2 here", r, n, r%2); !strings.Contains(
			j.stdout.String(), place) {
			j.t.Errorf("there is no %q in\n%s%s", place, &j.stdout, &j.stderr)
		}
	}
}

// The launcher of an MPIJob needs no flags, whichever MPI its hostfile is for.
func TestMPIJob(t *testing.T) {
	t.Parallel()
	for name, hostfile := range map[string]string{"Open MPI": "h1 slots=2\nh2 slots=2\n", "MPICH": "h1:2\nh2:2\n"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3)
			c.mpiJob(map[string]string{"hostfile": hostfile})
			j := c.run(does("collectives"), self())
			j.expect(0, "this is an MPIJob: its hosts are those of /etc/mpi/hostfile")
			j.ranks(4)
			j = c.run(does("collectives", "JOB_COMPLETION_INDEX=0"), "-np", "2", self()) // of a JobSet
			j.expect(0)
			j.ranks(2)
		})
	}
}

// The operator's first version has no sshd in the pods. It gives the launcher a script.
func TestMPIJobWithoutSSH(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	pods := ""
	for i, h := range c.Hosts {
		pods += fmt.Sprintf("h%d) where=%s;;\n", i, h.Command(context.Background(), "").Args[1])
		c.StopSSHD(i)
	}
	c.Write("kubectl", "#!/bin/sh\n[ $1 = exec ] && shift\nif [ \"$1\" = -i ]; then shift; else exec </dev/null; fi\n"+
		"case $1 in\n"+pods+"esac\nshift 2\nexec nsenter $where \"$@\"\n")
	if err := os.Chmod(c.File("kubectl"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.mpiJob(map[string]string{"hostfile": "h1 slots=2\nh2 slots=2\n",
		"kubexec.sh": "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n" + c.File("kubectl") +
			" exec ${POD_NAME} -- /bin/sh -c \"$*\"\n"})
	for _, env := range [][]string{nil, {"OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"}} {
		j := c.run(does("collectives", append(env, "GOROVOD_SSH=")...), self())
		j.expect(0)
		j.ranks(4)
	}
}

// With --min-np alone an MPIJob is elastic. The launcher starts before the workers, and begins on the workers that run,
// with the slots of the hostfile. It goes on without a pod that is deleted, and takes in the pod that replaces it. That
// pod has the same name.
func TestElasticMPIJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	const nobody = "#!/bin/sh\n"
	c.mpiJob(map[string]string{"hostfile": "h1 slots=2\nh2 slots=2\n", "discover_hosts.sh": nobody})
	c.StopSSHD(1)
	r := c.train(nil, "--min-np", "1", "--max-np", "4")
	r.await("the one slot that the job needs is not there", 1)
	c.Write("mpi/discover_hosts.sh", nobody+"echo h1\n") // it runs, and does not listen yet
	r.await("h1.*Connection refused", 1)
	c.StartSSHD(1)
	r.await("worker .*: of 2", 2)
	c.Write("mpi/discover_hosts.sh", nobody+"echo h1\necho h2\n")
	r.await("worker .*: of 4", 4)
	// A pod is deleted. The launcher sees the operator's new files only later.
	c.StopSSHD(2)
	for _, pid := range c.Hosts[2].Processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	r.await("worker .*: of 2", 2)
	began := time.Now()
	c.StartSSHD(2)
	r.await("worker .*: of 4", 4)
	t.Logf("the replacement trains after %.1f s", time.Since(began).Seconds())
	// A pod is drained: its preStop hook returns when its processes have committed and ended. For a while the pod stays
	// in the list. The hook may find another installation than the one that the launcher started.
	other := filepath.Join(t.TempDir(), "gorovod")
	program := filepath.Join(filepath.Dir(other), filepath.Base(self()))
	if out, err := exec.Command("cp", self(), program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink(program, other); err != nil {
		t.Fatal(err)
	}
	hook := c.Command(t.Context(), 2, other, "leave")
	if out, err := hook.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	for _, pid := range c.Hosts[2].Processes() {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && !strings.HasPrefix(string(name), "sshd") { // sshd ends its connections after the agents' ends
			t.Errorf("process %d (%s) is left on the pod that was drained", pid, bytes.TrimSpace(name))
		}
	}
	r.awaitAll(lines{"host h2 leaves the job: its agent got SIGTERM", 1}, lines{">:dismissed\n", 2},
		lines{"worker .*: of 2", 2})
	r.await("worker .*: of 4", 4)
	r.finish(4)
	cluster.NobodyLeft(t, r.mark, 20*time.Second)
}

// On a host without processes of a job there is nothing to leave.
func TestNothingToLeave(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	out, err := c.Command(t.Context(), 0, c.gorovod, "leave").CombinedOutput()
	if want := "no other host's launcher has started anything here\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}
