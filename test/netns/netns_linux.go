// Package netns makes hosts for tests out of network namespaces. Only open files
// hold them, so nothing is left of them when the test's process ends, however it
// ends.
package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Host is a network namespace with loopback and an interface to the others.
type Host struct {
	Address string
	// Only hosts of Many have Address6 and Interface.
	Address6, Interface string
	file                *os.File
}

// Interface is the name of the interface of each of Two's hosts to the other.
const Interface = "wire0"

// Two makes two hosts, joined by a wire. rate limits each direction, in tc's form
// ("1gbit"); it is empty for no limit. Two skips the test, with the reason, if this
// process may not make namespaces or lacks the tools. The end of the test removes the
// hosts and the wire.
func Two(t testing.TB, rate string) [2]Host {
	t.Helper()
	for _, tool := range []string{"ip", "tc", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("network namespaces need %s (Debian: iproute2, util-linux): %v", tool, err)
		}
	}
	var hosts [2]Host
	for i := range hosts {
		f, err := create()
		if err != nil {
			t.Skipf("network namespaces need root, in a container CAP_SYS_ADMIN: %v", err)
		}
		t.Cleanup(func() { f.Close() })
		hosts[i] = Host{Address: fmt.Sprintf("10.77.0.%d", i+1), file: f}
	}
	for _, h := range hosts {
		h.run(t, "ip", "link", "set", "lo", "up")
	}
	wire(t, hosts, Interface, "10.77.0", rate)
	return hosts
}

// SecondInterface is the name of the interface that SecondWire adds to each host.
const SecondInterface = "wire1"

// SecondWire joins two hosts by another wire, in a subnet of its own.
func SecondWire(t testing.TB, hosts [2]Host, rate string) {
	wire(t, hosts, SecondInterface, "10.77.1", rate)
}

// wire joins two hosts by a wire with that rate. subnet is the beginning of their addresses.
func wire(t testing.TB, hosts [2]Host, name, subnet, rate string) {
	t.Helper()
	hosts[0].run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", hosts[1].path())
	for i, h := range hosts {
		h.run(t, "ip", "address", "add", fmt.Sprintf("%s.%d/24", subnet, i+1), "dev", name)
		h.run(t, "ip", "link", "set", name, "up")
		if rate != "" {
			h.run(t, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst", "512kb",
				"latency", "20ms")
		}
	}
}

// run runs a command on the host. If that fails, it skips the test.
func (h Host) run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := h.Command(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Skipf("%s %v: %v: %s", name, args, err, out)
	}
}

// Cut makes the wire between two hosts lose everything, and neither end gets an error:
// all frames go to a hardware address that no host has.
func Cut(t testing.TB, hosts [2]Host) {
	t.Helper()
	for i, h := range hosts {
		other := hosts[1-i].Address
		args := []string{"neighbour", "replace", other, "lladdr", "02:00:00:00:00:99", "dev", Interface, "nud",
			"permanent"}
		if out, err := h.Command(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Skipf("ip %v: %v: %s", args, err, out)
		}
	}
}

// Many makes n hosts around a bridge, with IPv4 and IPv6 addresses. Their
// interfaces have different names. Each host also has a bridge for containers, with
// the same address on all hosts. Many skips the test as Two does.
func Many(t testing.TB, n int) []Host {
	t.Helper()
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("network namespaces need %s (Debian: iproute2, util-linux): %v", tool, err)
		}
	}
	hosts := make([]Host, n+1) // the last one is the switch
	for i := range hosts {
		f, err := create()
		if err != nil {
			t.Skipf("network namespaces need root, in a container CAP_SYS_ADMIN: %v", err)
		}
		t.Cleanup(func() { f.Close() })
		hosts[i] = Host{Address: fmt.Sprintf("10.78.0.%d", i+1), Address6: fmt.Sprintf("fd78::%d", i+1),
			Interface: fmt.Sprintf("net%d", i), file: f}
	}
	// One process for each host: a test makes many of these.
	batch := func(h Host, commands string) {
		t.Helper()
		c := h.Command(t.Context(), "ip", "-batch", "-")
		c.Stdin = strings.NewReader(commands)
		if out, err := c.CombinedOutput(); err != nil {
			t.Skipf("ip -batch: %v: %s\n%s", err, out, commands)
		}
	}
	middle := hosts[n]
	var ports strings.Builder
	fmt.Fprintf(&ports, "link add wires type bridge forward_delay 0\nlink set wires up\n")
	for i := range n {
		fmt.Fprintf(&ports, "link add port%d type veth peer name net%d netns %s\nlink set port%d master wires up\n", i,
			i, hosts[i].path(), i)
	}
	batch(middle, ports.String())
	for _, h := range hosts[:n] {
		batch(h, fmt.Sprintf("link set lo up\naddress add %s/24 dev %s\naddress add %s/64 dev %s nodad\nlink "+
			"set %s up\n"+
			"link add docker0 type bridge\naddress add 172.17.0.1/16 dev docker0\nlink set docker0 up\n", h.Address,
			h.Interface, h.Address6, h.Interface, h.Interface))
	}
	return hosts[:n]
}

// Link sets the interface of one of Many's hosts "down", or "up" again.
func (h Host) Link(t testing.TB, state string) {
	t.Helper()
	if out, err := h.Command(t.Context(), "ip", "link", "set", h.Interface, state).CombinedOutput(); err != nil {
		t.Errorf("ip link set %s %s: %v: %s", h.Interface, state, err, out)
	}
}

// Slow limits the rate at which a host of Many's sends, in tc's form ("1gbit"). An empty rate removes the limit.
func (h Host) Slow(t testing.TB, rate string) {
	t.Helper()
	args := []string{"qdisc", "replace", "dev", h.Interface, "root", "tbf", "rate", rate, "burst", "32kb",
		"latency", "100ms"}
	if rate == "" {
		args = []string{"qdisc", "del", "dev", h.Interface, "root"}
	}
	if out, err := h.Command(t.Context(), "tc", args...).CombinedOutput(); err != nil {
		t.Errorf("tc %v: %v: %s", args, err, out)
	}
}

// Processes lists the processes that run on a host now.
func (h Host) Processes() (pids []int) {
	mine, err := os.Readlink(h.path())
	if err != nil {
		return nil
	}
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			if its, err := os.Readlink("/proc/" + d.Name() + "/ns/net"); err == nil && its == mine {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// create makes a namespace on this thread, and then returns the thread to its own
// namespace. It must not end the thread, which may have started processes that die with it.
func create() (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const mine = "/proc/thread-self/ns/net"
	own, err := os.Open(mine)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	f, err := os.Open(mine)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // nothing else could run on this thread
	}
	return f, err
}

// Inside calls f on a thread that is on the host: the sockets that f makes belong to it. f starts no goroutine.
func (h Host) Inside(f func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	if err := unix.Setns(int(h.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	f()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
		panic(back) // nothing else could run on this thread
	}
	return nil
}

func (h Host) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.file.Fd()) }

// Command is a command on the host, which dies with the test's process.
func (h Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + h.path(), name}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}
