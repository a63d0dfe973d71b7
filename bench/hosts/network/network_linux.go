// Package network makes hosts out of namespaces, and a network between them that has a rate and a delay.
//
// Each host is a network namespace with an interface eth0, a host name, /dev/shm, /sys and /etc/hosts of its own.
// The hosts share all other files, and their processes are processes of this machine. A namespace lives as long as a
// process in it; the one that New starts reads a pipe whose other end only this process has. So nothing is left
// when this process ends, however it ends, if the programs on the hosts end, too.
//
//	h0 ─ eth0 ─┐
//	h1 ─ eth0 ─┼─ switch    without a delay: the kernel's bridge, with a token bucket (tbf) for each direction of a link
//	h2 ─ eth0 ─┘            with a delay: Relay, between tap devices, because few kernels have netem
package network

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Interface is the name of each host's interface to the others, Subnet their network.
const (
	Interface = "eth0"
	Subnet    = "10.80.0.0/24"
)

// Most is how many hosts a network has at most.
const Most = 64

// Link is the connection of each host with the switch.
type Link struct {
	Rate  int64         // bits per second in each direction; 0 for no limit
	Delay time.Duration // from a host to another one
}

// Network is a number of hosts around a switch.
type Network struct {
	Hosts []*Host
	dir   string
	ports *Host // the switch's namespace
	relay *Relay
}

// Host is one of a network's hosts.
type Host struct {
	Name, Address string
	holder        *exec.Cmd
	life          io.Closer // the end of the holder's stdin
}

// New makes n hosts. Their files are in dir, which stays the caller's. It needs root, or in a container CAP_SYS_ADMIN
// and CAP_NET_ADMIN, and the programs ip, tc, nsenter and unshare.
func New(dir string, n int, link Link) (*Network, error) {
	if n < 1 || n > Most {
		return nil, fmt.Errorf("%d hosts: a number from 1 to %d is needed", n, Most)
	}
	for _, tool := range []string{"ip", "tc", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("hosts need %s (Debian: iproute2, util-linux): %w", tool, err)
		}
	}
	w := &Network{dir: dir}
	names := "127.0.0.1 localhost\n"
	for i := range n {
		names += fmt.Sprintf("%s h%d\n", address(i), i)
	}
	err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(names), 0o644)
	for i := 0; i < n && err == nil; i++ {
		var h *Host
		if h, err = w.host(fmt.Sprintf("h%d", i), address(i)); err == nil {
			w.Hosts = append(w.Hosts, h)
		}
	}
	if err == nil {
		w.ports, err = w.host("switch", "")
	}
	if err == nil {
		err = w.wire(link)
	}
	if err == nil {
		err = w.writeShell()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func address(host int) string { return fmt.Sprintf("10.80.0.%d", host+1) }

// hold keeps a host's namespaces, until the end of its stdin. $1 is the host's name, $2 its /etc/hosts.
const hold = `set -e
mount --make-rprivate /
echo "$1" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t sysfs sysfs /sys
mount --bind "$2" /etc/hosts
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null || true
ip link set lo up
echo ready
exec cat >/dev/null`

func (w *Network) host(name, address string) (*Host, error) {
	h := &Host{Name: name, Address: address}
	h.holder = exec.Command("unshare", "--net", "--uts", "--mount", "sh", "-c", hold, "sh", name,
		filepath.Join(w.dir, "hosts"))
	h.holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is not for it
	var said strings.Builder
	h.holder.Stderr = &said
	life, err := h.holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	h.life = life
	out, err := h.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.holder.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		h.close()
		return nil, fmt.Errorf("namespaces need root, in a container CAP_SYS_ADMIN: %s",
			strings.TrimSpace(said.String()))
	}
	return h, nil
}

// PID is a process in the host's namespaces, which lives as long as the host.
func (h *Host) PID() int { return h.holder.Process.Pid }

// Command is a command on the host. If the thread that starts it ends, it gets a SIGTERM.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(h.PID()), "--net", "--uts",
		"--mount", "--", name}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	return c
}

// batch runs commands of ip or tc on the host.
func (h *Host) batch(tool string, commands []string) error {
	if len(commands) == 0 {
		return nil
	}
	c := h.Command(context.Background(), tool, "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s on %s: %w: %s", tool, h.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (h *Host) close() {
	h.life.Close()
	h.holder.Wait()
}

// Close removes the network. Programs that still run on its hosts keep what they use.
func (w *Network) Close() {
	if w.relay != nil {
		w.relay.Close()
	}
	for _, h := range append(w.Hosts, w.ports) {
		if h != nil {
			h.close()
		}
	}
}

// wire connects the hosts.
func (w *Network) wire(link Link) error {
	if link.Delay > 0 {
		relay, err := newRelay(w.Hosts, link)
		if err != nil {
			return fmt.Errorf("a delay needs /dev/net/tun: %w", err)
		}
		w.relay = relay
	} else if err := w.bridge(link.Rate); err != nil {
		return err
	}
	for i, h := range w.Hosts {
		up := []string{"link set " + Interface + " address " + hardware(i),
			"address add " + h.Address + "/24 dev " + Interface, "link set " + Interface + " up"}
		if link.Rate > 0 {
			up = append(up, fmt.Sprintf("link set %s gso_max_size %d", Interface, burst(link.Rate)))
		}
		for j, other := range w.Hosts { // so that no first packet waits for an answer
			if j != i {
				up = append(up, "neighbour add "+other.Address+" lladdr "+hardware(j)+" dev "+Interface)
			}
		}
		if err := h.batch("ip", up); err != nil {
			return err
		}
		if err := h.batch("tc", limit(Interface, link.Rate)); err != nil {
			return err
		}
	}
	return nil
}

func hardware(host int) string { return fmt.Sprintf("02:00:00:00:00:%02x", host+1) }

// bridge makes a bridge in the switch's namespace. Each of its ports is the other end of a host's interface.
func (w *Network) bridge(rate int64) error {
	commands, limits := []string{"link add hub type bridge forward_delay 0", "link set hub up"}, []string(nil)
	for i, h := range w.Hosts {
		port := fmt.Sprintf("port%d", i)
		commands = append(commands, fmt.Sprintf("link add %s type veth peer name %s netns %d", port, Interface,
			h.PID()))
		if rate > 0 {
			commands = append(commands, fmt.Sprintf("link set %s gso_max_size %d", port, burst(rate)))
		}
		commands = append(commands, fmt.Sprintf("link set %s master hub up", port))
		limits = append(limits, limit(port, rate)...)
	}
	if err := w.ports.batch("ip", commands); err != nil {
		return err
	}
	return w.ports.batch("tc", limits)
}

// burst is how many bytes pass at once: those of 50 µs, but at least a large packet. Packets are no larger, so that the
// kernel does not split them.
func burst(rate int64) int { return min(max(int(rate/8/20000), 16<<10), 64<<10) }

// limit has the kernel hold an interface to a rate in the direction out of it. The queue is so long that a burst from
// all other hosts drops nothing, as in a switch with deep buffers.
func limit(device string, rate int64) []string {
	if rate == 0 {
		return nil
	}
	return []string{fmt.Sprintf("qdisc add dev %s root tbf rate %dbit burst %d latency 300ms", device, rate,
		burst(rate)+2048)}
}

// Shell is a command that takes the place of ssh: its first argument that is no option is a host's name or address, and
// the others are a command for sh there.
func (w *Network) Shell() string { return filepath.Join(w.dir, "enter") }

func (w *Network) writeShell() error {
	var b strings.Builder
	b.WriteString(`#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
  -[opiFlb]) shift 2 ;;
  -*) shift ;;
  *) break ;;
  esac
done
host=$1
shift
case $host in
`)
	for _, h := range w.Hosts {
		fmt.Fprintf(&b, "%s | %s) pid=%d ;;\n", h.Name, h.Address, h.PID())
	}
	b.WriteString("*) echo \"$0: no host $host\" >&2; exit 255 ;;\nesac\n" +
		"exec nsenter --target $pid --net --uts --mount -- sh -c \"$*\"\n")
	return os.WriteFile(w.Shell(), []byte(b.String()), 0o755)
}
