package hosts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gorovod/gorovod/internal/tools/manifests"
	"github.com/gorovod/gorovod/test/output"
)

// inPod runs a command in the surroundings of a pod of an MPIJob: the keys where the operator mounts them, in a folder
// that all may write, /etc/mpi, a program in /usr/local/bin, an empty /run, and a user whom only the image knows. If
// the user is not root, the command has no privileges of root.
//
//	sh -c inPod sh USER KEYS MPI PROGRAM COMMAND…
const inPod = `set -e
user=$1 keys=$2 mpi=$3 program=$4
shift 4
mount --make-rprivate /
home=/root
[ "$user" = root ] || home=/home/$user
for dir in /run /root /home /usr/local/bin; do mount -t tmpfs -o mode=755 pod $dir; done
mkdir -p $home/.ssh
cp -r "$keys"/. $home/.ssh
chmod 644 $home/.ssh/*
[ "$user" != root ] || chmod 600 $home/.ssh/*
[ "$user" = root ] || chown 1000:1000 $home
chown root $home/.ssh
chmod 1777 $home/.ssh
touch /usr/local/bin/gorovod /usr/local/bin/ranks
ln -s gorovod /usr/local/bin/horovodrun
for name in gorovod ranks; do mount --bind "$program" /usr/local/bin/$name; done
mkdir "$mpi.etc.$$"
mount --bind /etc "$mpi.etc.$$"
chmod 755 "$mpi.etc.$$"
mount --move "$mpi.etc.$$" /mnt
mount -t tmpfs -o mode=755 etc /etc
ln -s /mnt/* /etc/
rm /etc/passwd
sed /:1000:/d /mnt/passwd >/etc/passwd
echo trainer:x:1000:1000::/home/trainer:/bin/sh >>/etc/passwd
cp -r "$mpi" /etc/mpi
chmod -R a+rX /etc/mpi
cd /
export PATH=/usr/local/bin:/usr/bin:/bin HOME=$home
[ "$user" != root ] || exec "$@"
exec setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"`

// container is a container in a manifest.
type container struct {
	Command   []string
	Readiness struct {
		TCP struct{ Port int } `yaml:"tcpSocket"`
	} `yaml:"readinessProbe"`
}

// rendered returns the containers of an MPIJob's launcher and workers, and the folder in which its operator puts the
// keys.
func rendered(t *testing.T, j manifests.Job) (launcher, worker container, keys string) {
	t.Helper()
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	text, err := j.Render()
	if err != nil {
		t.Fatal(err)
	}
	type pods struct {
		Template struct {
			Spec struct{ Containers []container }
		}
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var job struct {
			Kind string
			Spec struct {
				Keys     string `yaml:"sshAuthMountPath"`
				Replicas struct {
					Launcher pods `yaml:"Launcher"`
					Worker   pods `yaml:"Worker"`
				} `yaml:"mpiReplicaSpecs"`
			}
		}
		err := d.Decode(&job)
		if errors.Is(err, io.EOF) {
			t.Fatalf("no MPIJob in\n%s", text)
		}
		if job.Kind == "MPIJob" {
			r := job.Spec.Replicas
			return r.Launcher.Template.Spec.Containers[0], r.Worker.Template.Spec.Containers[0],
				cmp.Or(job.Spec.Keys, "/root/.ssh")
		}
	}
}

// The MPIJob that render prints works in an image of Debian's packages, run by root or by a user without rights: the
// workers' sshd starts, and the launcher reaches it with the operator's keys.
func TestRenderedMPIJob(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"root", "trainer"} {
		t.Run(user, func(t *testing.T) {
			c := newCluster(t, 3)
			m := manifests.Job{Kind: manifests.MPIJob, Name: "train", Image: "i", Nodes: 2, Slots: 2,
				Command: []string{"/usr/local/bin/ranks"}}
			if user != "root" {
				m.User = user
			}
			launcher, worker, keys := rendered(t, m)
			if want := filepath.Join("/home", user, ".ssh"); user != "root" && keys != want {
				t.Errorf("the keys are in %s, where ssh of %s does not look", keys, user)
			}
			if err := os.MkdirAll(c.File("keys"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.Keygen("keys/id_rsa")
			public, err := os.ReadFile(c.File("keys/id_rsa.pub"))
			if err != nil {
				t.Fatal(err)
			}
			c.Write("keys/authorized_keys", string(public))
			if err := os.Mkdir(c.File("mpi"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.Write("mpi/hostfile", fmt.Sprintf("%s slots=2\n%s slots=2\n", c.Hosts[1].Address, c.Hosts[2].Address))
			pod := func(host int, command ...string) *exec.Cmd {
				return c.Command(context.Background(), host, "unshare", append([]string{"--mount", "sh", "-c", inPod,
					"sh", user, c.File("keys"), c.File("mpi"), self()}, command...)...)
			}
			for i := range c.Hosts {
				c.StopSSHD(i)
			}
			var sshds output.Buffer
			for i := 1; i < len(c.Hosts); i++ {
				sshd := pod(i, worker.Command...)
				sshd.Stdout, sshd.Stderr, sshd.WaitDelay = &sshds, &sshds, time.Second
				if err := sshd.Start(); err != nil {
					t.Fatal(err)
				}
				c.SSHDs[i] = sshd // the cluster ends it
				listens := fmt.Sprintf(":%04X 00000000:0000 0A", worker.Readiness.TCP.Port)
				for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", sshd.Process.Pid))
					if strings.Contains(string(table), listens) {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("the worker is not ready: %s", sshds.String())
					}
				}
			}
			j := &job{t: t, Cmd: pod(0, launcher.Command...)}
			j.WaitDelay = time.Second
			j.Env = append(os.Environ(), append(does("collectives"), "GORACE=atexit_sleep_ms=0")...)
			j.Stdout, j.Stderr = &j.stdout, &j.stderr
			j.expect(0)
			j.ranks(4)
		})
	}
}
