// Package cluster makes hosts for tests: network namespaces, each with an sshd. Their
// names are h0, h1, …, and a program there finds its host's name.
package cluster

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

	"github.com/gorovod/gorovod/test/netns"
)

// Cluster is a number of hosts. The end of its test removes it.
type Cluster struct {
	Hosts []netns.Host
	// Dir is a directory that all hosts share.
	Dir string
	// SSHDs are the sshds by host, nil for a host without one.
	SSHDs []*exec.Cmd
	t     testing.TB
}

// New makes n hosts; options are lines for the sshds' configuration. If that is
// impossible here, it skips the test, with the reason.
func New(t testing.TB, n int, options ...string) *Cluster {
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
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd needs it for privilege separation
		t.Skip(err)
	}
	c := &Cluster{t: t, Hosts: netns.Many(t, n), Dir: t.TempDir()}
	c.Keygen("id")
	public, err := os.ReadFile(c.File("id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	c.Write("authorized", string(public))
	config := fmt.Sprintf("Host *\n User root\n IdentityFile %s\n IdentitiesOnly yes\n UserKnownHostsFile %s\n "+
		"GlobalKnownHostsFile /dev/null\n LogLevel ERROR\n", c.File("id"), c.File("known"))
	for i, h := range c.Hosts {
		config += fmt.Sprintf("Host h%d\n HostName %s\nHost six%d\n HostName %s\n", i, h.Address, i, h.Address6)
		c.Keygen(fmt.Sprintf("host%d", i))
		c.Write(fmt.Sprintf("sshd%d", i), fmt.Sprintf("Port 22\nHostKey %s\nPidFile none\nAuthorizedKeysFile "+
			"%s\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\n%s\n",
			c.File(fmt.Sprintf("host%d", i)), c.File("authorized"), strings.Join(options, "\n")))
		c.SSHDs = append(c.SSHDs, nil)
		c.StartSSHD(i)
		t.Cleanup(func() { c.StopSSHD(i) })
	}
	c.Write("config", config)
	return c
}

// SSH is the command of an ssh that knows the hosts, for GOROVOD_SSH.
func (c *Cluster) SSH() string { return "ssh -F " + c.File("config") }

// File is the path of a file of that name in Dir.
func (c *Cluster) File(name string) string { return filepath.Join(c.Dir, name) }

// Write makes a file in Dir.
func (c *Cluster) Write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.File(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Keygen makes a key in Dir.
func (c *Cluster) Keygen(name string) {
	c.t.Helper()
	os.Remove(c.File(name))
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		c.File(name)).CombinedOutput(); err != nil {
		c.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

// StartSSHD starts a host's sshd, and waits until it listens.
func (c *Cluster) StartSSHD(i int) {
	c.t.Helper()
	cmd := c.Command(context.Background(), i, "/usr/sbin/sshd", "-D", "-e", "-f", c.File(fmt.Sprintf("sshd%d", i)))
	// The log is a file, because sessions may outlive the sshd, and would hold a pipe open.
	log, err := os.Create(c.File(fmt.Sprintf("sshd%d.log", i)))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.SSHDs[i] = cmd
	for range 1000 {
		if table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", cmd.Process.Pid)); bytes.Contains(table,
			[]byte(":0016 00000000:0000 0A")) && inside(cmd.Process.Pid) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	c.t.Fatalf("sshd of h%d does not listen: %s", i, text)
}

// Command is a command on a host. It sees the host's name, and the host's interfaces in /sys, where some programs look
// for them. It dies with the test's process.
func (c *Cluster) Command(ctx context.Context, i int, name string, args ...string) *exec.Cmd {
	named := fmt.Sprintf("echo h%d > /proc/sys/kernel/hostname && mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"", i)
	return c.Hosts[i].Command(ctx, "unshare", append([]string{"--uts", "--mount", "sh", "-c", named, name}, args...)...)
}

// inside reports whether a process has left this process's network namespace.
func inside(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/net")
	its, other := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil && other == nil && own != its
}

// StopSSHD kills a host's sshd with its sessions.
func (c *Cluster) StopSSHD(i int) {
	cmd := c.SSHDs[i]
	if cmd == nil {
		return
	}
	c.SSHDs[i] = nil
	for _, p := range Children(cmd.Process.Pid) {
		syscall.Kill(p, syscall.SIGKILL)
	}
	cmd.Process.Kill()
	cmd.Wait()
}
