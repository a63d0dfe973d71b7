// Package kubelet makes pods for tests, as a kubelet does. A pod is a container with an address, a host name, a control
// group with limits, and a resolver that knows the pods of its headless Service while they are ready. Nothing of a pod
// is left when its test has ended.
package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/netns"
)

// The headless Service of the pods, and their namespace.
const (
	Service   = "train"
	namespace = "ns"
	zone      = Service + "." + namespace + ".svc.cluster.local"
)

// Limits are those of each container; 0 for none.
type Limits struct {
	CPUs   float64
	Memory int64 // bytes
}

// Cluster has nodes on which pods run, and the pods' name server.
type Cluster struct {
	Nodes []netns.Host
	t     testing.TB
	dir   string
	names *names
	group *groups

	mu      sync.Mutex
	started int
}

// New makes a cluster of n nodes, whose name server keeps what it answers for a while. It skips the test, with the
// reason, where it cannot. Unlimited says where pods have no limits.
func New(t testing.TB, n int, limits Limits, keeps time.Duration) *Cluster {
	t.Helper()
	nodes := netns.Many(t, n+1) // the last one is the name server's
	c := &Cluster{Nodes: nodes[:n], t: t, dir: t.TempDir()}
	var err error
	if c.names, err = serveNames(nodes[n], keeps); err != nil {
		t.Skipf("pods need a name server: %v", err)
	}
	t.Cleanup(c.names.close)
	c.group = newGroups(limits)
	t.Cleanup(func() {
		if err := c.group.remove(); err != nil {
			t.Error(err)
		}
	})
	for name, text := range map[string]string{
		"nsswitch.conf": "hosts: files dns\n",
		"resolv.conf": fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local\nnameserver %s\n"+
			"options ndots:5\n", namespace, nodes[n].Address),
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Unlimited says why the pods have no control groups; nil if they have.
func (c *Cluster) Unlimited() error { return c.group.trouble }

// inside prepares a container and runs its command. The arguments are the pod's name, the folder with its files, and
// the files of control groups that its processes belong to. It enters the groups before it makes the namespaces, so
// that the container sees its own group as the root of all.
const inside = `set -e
name=$1 files=$2 groups=$3
shift 3
for group in $groups; do echo $$ >$group/cgroup.procs; done
export name files groups
exec unshare --cgroup --uts --mount sh -c 'set -e
echo $name >/proc/sys/kernel/hostname
for file in hosts resolv.conf nsswitch.conf; do mount --bind $files/$file /etc/$file; done
if test -n "$groups"; then . $files/cgroups; fi
unset name files groups
exec "$@"' sh "$@"`

// Command is a command in the container of a new pod of that name on a node.
func (c *Cluster) Command(ctx context.Context, name string, node int, command string, args ...string) *exec.Cmd {
	c.t.Helper()
	c.mu.Lock()
	c.started++
	number := c.started
	c.mu.Unlock()
	files := filepath.Join(c.dir, fmt.Sprint(number))
	group, err := c.group.container(fmt.Sprint(number))
	if err == nil {
		err = os.Mkdir(files, 0o755)
	}
	for _, f := range []string{"nsswitch.conf", "resolv.conf"} {
		if err == nil {
			err = os.Link(filepath.Join(c.dir, f), filepath.Join(files, f))
		}
	}
	for f, text := range map[string]string{
		"hosts": fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n%s\t%s.%s\t%s\n",
			c.Nodes[node].Address, name, zone, name),
		"cgroups": c.group.mounts(),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(files, f), []byte(text), 0o644)
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return c.Nodes[node].Command(ctx, "sh", append([]string{"-c", inside, "sh", name, files, group, command},
		args...)...)
}

// Ready lets the pod's name lead to its node's address, for those who ask from now on.
func (c *Cluster) Ready(name string, node int) { c.names.set(name, c.Nodes[node].Address) }

// Gone takes the pod's name away, unless it leads to another node by now.
func (c *Cluster) Gone(name string, node int) { c.names.drop(name, c.Nodes[node].Address) }
