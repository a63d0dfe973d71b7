package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Mpirun is a launcher of MPI, which starts ranks on the hosts of a cluster from h0.
type Mpirun struct {
	// Name is the name of the MPI.
	Name string
	// Program is the launcher's name in Debian.
	Program string
	// Spares: an option keeps the launcher from ending the other ranks when a rank has died.
	Spares bool
	args   func(c *Cluster, hosts string, spare bool, env []string) []string
}

// Mpiruns are the launchers of Open MPI and MPICH.
var Mpiruns = []Mpirun{
	{"Open MPI", "mpirun.openmpi", true, func(c *Cluster, hosts string, spare bool, env []string) []string {
		// Its connections are limited to the wire, because the loopback does not lead to other hosts.
		args := []string{"--allow-run-as-root", "--oversubscribe", "-H", hosts, "--mca", "plm_rsh_agent", c.agent(),
			"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include", subnet, "--mca",
			"oob_tcp_if_include", subnet,
			"--mca", "btl_vader_backing_directory", c.Dir} // in /dev/shm killed ranks would leave files
		if spare {
			args = append(args, "--enable-recovery")
		}
		for _, v := range env {
			name, _, _ := strings.Cut(v, "=")
			args = append(args, "-x", name)
		}
		return args
	}},
	{"MPICH", "mpirun.mpich", false, func(c *Cluster, hosts string, spare bool, env []string) []string {
		return []string{"-launcher", "ssh", "-launcher-exec", c.File("agent"), "-localhost", c.Hosts[0].Address,
			"-hosts", hosts, "-genv", "UCX_TLS", "tcp,self"}
	}},
}

// subnet is the subnet of the hosts' wires.
const subnet = "10.78.0.0/24"

// agent is the command of the ssh that an mpirun uses.
func (c *Cluster) agent() string {
	return c.SSH() + " -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
}

// Mpirun prepares an mpirun of local ranks on each host, with env in addition to this process's environment. With spare
// it does not end the other ranks when a rank has died, if the MPI can do that. Mpirun skips the test if there is no
// such MPI. It removes the containers' bridges, because MPIs take them for connections between hosts.
func (c *Cluster) Mpirun(ctx context.Context, t testing.TB, m Mpirun, local int, spare bool, env []string,
	command ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(m.Program); err != nil {
		t.Skipf("%s is not installed (Debian: openmpi-bin, mpich): %v", m.Name, err)
	}
	c.Write("agent", "#!/bin/sh\nexec "+c.agent()+" \"$@\"\n")
	if err := os.Chmod(c.File("agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, h := range c.Hosts {
		h.Command(t.Context(), "ip", "link", "del", "docker0").Run() // fails if it has been removed before
		hosts = append(hosts, fmt.Sprintf("%s:%d", h.Address, local))
	}
	args := append(m.args(c, strings.Join(hosts, ","), spare, env), "-n", fmt.Sprint(local*len(hosts)))
	cmd := c.Command(ctx, 0, m.Program, append(args, command...)...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}
