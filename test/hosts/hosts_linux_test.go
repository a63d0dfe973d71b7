// Package hosts tests jobs over several hosts, which are network namespaces, each
// with an sshd of its own. The test binary is all programs: the launcher, the agents,
// the supervisors and what the ranks run.
package hosts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch"
	"github.com/gorovod/gorovod/test/netns"
)

// programVariable makes the test binary a program that ranks run.
const programVariable = "GOROVOD_HOSTS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch {
	case name == "horovodrun" || name == "gorovod" || name == "gorovod-supervisor" || len(os.Args) == 2 && os.Args[1] == "agent":
		os.Exit(launch.Main(os.Args))
	case os.Getenv(programVariable) != "":
		os.Exit(programs[os.Getenv(programVariable)]())
	}
	os.Exit(m.Run())
}

// cluster is a number of hosts that know each other as h0, h1, …; the launcher
// runs on h0.
type cluster struct {
	t                   testing.TB
	hosts               []netns.Host
	dir                 string
	sshds               []*exec.Cmd
	horovodrun, gorovod string
}

// newCluster makes n hosts; options are lines for the sshds' configuration.
func newCluster(t testing.TB, n int, options ...string) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("hosts need root")
	}
	sshd := "/usr/sbin/sshd"
	for _, tool := range []string{sshd, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("hosts need %s (Debian: openssh-server, openssh-client): %v", tool, err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // where sshd hides its children
		t.Skip(err)
	}
	c := &cluster{t: t, hosts: netns.Many(t, n), dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.horovodrun, c.gorovod = c.file("horovodrun"), c.file("gorovod")
	for _, link := range []string{c.horovodrun, c.gorovod} {
		if err := os.Symlink(self, link); err != nil {
			t.Fatal(err)
		}
	}
	c.keygen("id")
	public, err := os.ReadFile(c.file("id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	c.write("authorized", string(public))
	config := fmt.Sprintf("Host *\n User root\n IdentityFile %s\n IdentitiesOnly yes\n UserKnownHostsFile %s\n GlobalKnownHostsFile /dev/null\n LogLevel ERROR\n", c.file("id"), c.file("known"))
	for i, h := range c.hosts {
		config += fmt.Sprintf("Host h%d\n HostName %s\nHost six%d\n HostName %s\n", i, h.Address, i, h.Address6)
		c.keygen(fmt.Sprintf("host%d", i))
		c.write(fmt.Sprintf("sshd%d", i), fmt.Sprintf("Port 22\nHostKey %s\nPidFile none\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\n%s\n",
			c.file(fmt.Sprintf("host%d", i)), c.file("authorized"), strings.Join(options, "\n")))
		c.sshds = append(c.sshds, nil)
		c.startSSHD(i)
	}
	c.write("config", config)
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) keygen(name string) {
	c.t.Helper()
	os.Remove(c.file(name))
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", c.file(name)).CombinedOutput(); err != nil {
		c.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

// startSSHD starts a host's sshd, and waits until it listens.
func (c *cluster) startSSHD(i int) {
	c.t.Helper()
	cmd := c.hosts[i].Command(context.Background(), "/usr/sbin/sshd", "-D", "-e", "-f", c.file(fmt.Sprintf("sshd%d", i)))
	// A file: its sessions may outlive it, and would hold a pipe open.
	log, err := os.Create(c.file(fmt.Sprintf("sshd%d.log", i)))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.sshds[i] = cmd
	c.t.Cleanup(func() { c.stopSSHD(i) })
	for range 200 {
		if out, _ := c.hosts[i].Command(context.Background(), "cat", "/proc/net/tcp").Output(); bytes.Contains(out, []byte(":0016 00000000:0000 0A")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("sshd of h%d does not listen: %s", i, readFile(c.t, log.Name()))
}

// stopSSHD kills a host's sshd with its sessions.
func (c *cluster) stopSSHD(i int) {
	cmd := c.sshds[i]
	if cmd == nil {
		return
	}
	c.sshds[i] = nil
	for _, p := range children(cmd.Process.Pid) {
		syscall.Kill(p, syscall.SIGKILL)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// job is one horovodrun on h0.
type job struct {
	*exec.Cmd
	t              testing.TB
	stdout, stderr bytes.Buffer
	read           chan struct{} // closed when until's reader is at the end
}

// run prepares horovodrun; env adds to its environment.
func (c *cluster) run(env []string, args ...string) *job {
	j := &job{t: c.t, Cmd: c.hosts[0].Command(context.Background(), c.horovodrun, args...)}
	j.WaitDelay = time.Second // whatever holds its output open
	j.Env = append(os.Environ(), "GOROVOD_SSH=ssh -F "+c.file("config"), "GORACE=atexit_sleep_ms=0")
	j.Env = append(j.Env, env...)
	j.Stdout, j.Stderr = &j.stdout, &j.stderr
	return j
}

// does is the environment in which the test binary runs a program.
func does(program string, env ...string) []string { return append(env, programVariable+"="+program) }

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// expect runs it to its end, for at most a minute.
func (j *job) expect(code int, says ...string) {
	j.t.Helper()
	stop := time.AfterFunc(time.Minute, func() { j.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	j.Run()
	j.ended(code, says...)
}

// ended checks how it has ended. What it must say are regular expressions.
func (j *job) ended(code int, says ...string) {
	j.t.Helper()
	if got := j.ProcessState.ExitCode(); got != code {
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
