package hosts

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// ip runs ip or tc on a host. If the kernel cannot do that, it skips the test.
func (c *testCluster) ip(host int, args ...string) {
	c.t.Helper()
	if out, err := c.Hosts[host].Command(c.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		c.t.Skipf("%v: %v: %s", args, err, out)
	}
}

// right runs the collectives on np ranks. All results must be right on all ranks.
func (c *testCluster) right(np int, hosts string, env ...string) *job {
	c.t.Helper()
	j := c.run(does("collectives", env...), "-np", fmt.Sprint(np), "-H", hosts, "--verbose", self())
	j.expect(0)
	if n := strings.Count(j.stdout.String(), "all is right"); n != np {
		c.t.Errorf("%s: %d of %d ranks are right: %s", hosts, n, np, &j.stderr)
	}
	return j
}

// One host has a link that is a hundred times slower than the others'. It slows down the
// job, and changes nothing else, in each form of the collectives.
func TestOneSlowLink(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	c.ip(2, "tc", "qdisc", "add", "dev", c.Hosts[2].Interface, "root", "tbf", "rate", "100mbit", "burst", "64kb",
		"latency", "50ms")
	for _, hierarchical := range []string{"0", "1"} {
		c.right(5, "h0:1,h1:1,h2:2,h3:1", "HOROVOD_HIERARCHICAL_ALLREDUCE="+hierarchical)
	}
}

// Two hosts have equal private addresses on interfaces to networks of their own, which
// are no bridges. At such an address each would reach itself, or nobody. Trials find the
// addresses that work, and the ranks of the two hosts do not pass for one host's.
func TestPrivateRangesTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, h := range []int{1, 2} {
		c.ip(h, "ip", "link", "add", "lab0", "type", "veth", "peer", "name", "lab0p")
		c.ip(h, "ip", "address", "add", "10.99.0.1/16", "dev", "lab0")
		c.ip(h, "ip", "link", "set", "lab0", "up")
		c.ip(h, "ip", "link", "set", "lab0p", "up")
	}
	// A third host has another address of that range, at which neither of the two reaches it.
	c.ip(0, "ip", "link", "add", "lab0", "type", "veth", "peer", "name", "lab0p")
	c.ip(0, "ip", "address", "add", "10.99.0.2/16", "dev", "lab0")
	c.ip(0, "ip", "link", "set", "lab0", "up")
	c.ip(0, "ip", "link", "set", "lab0p", "up")
	j := c.right(5, "h0:1,h1:2,h2:2")
	if text := j.stderr.String(); !strings.Contains(text, "10.99.0.2") {
		t.Errorf("the address in the private range was not even offered: %s", text)
	}
	// All hosts have an interface that leads nowhere. The error comes within the start time-out.
	c.run(does("collectives"), "-np", "2", "-H", "h1:1,h2:1", "--network-interfaces", "lab0", "--start-timeout",
		"5", self()).
		expect(1, `lab0|10\.99\.0\.2`)
}

// The interface has another name on each host. A job that is restricted to all of these
// names uses them and nothing else. If a host has none of the names, the error names the host
// and its interfaces, before any process is started.
func TestInterfacesWithOtherNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for h := range c.Hosts { // a second network that all share, on which the job must not be
		c.ip(h, "ip", "address", "add", fmt.Sprintf("10.79.0.%d/24", h+1), "dev", "docker0")
	}
	restricted := func(names string, options ...string) *job {
		return c.run(does("collectives", "GOROVOD_TRANSPORT=tcp", "HOROVOD_LOG_LEVEL=debug"),
			append([]string{"-np", "4", "-H", "h1:2,h2:1,h0:1", "--verbose", "--network-interfaces", names},
				append(options, self())...)...)
	}
	j := restricted("net0,net1,net2,net7")
	j.expect(0, "h1 has net1\\n", "h2 has net2\\n", "--network-interfaces: no host has net7\\n")
	if n := strings.Count(j.stdout.String(), "all is right"); n != 4 {
		t.Errorf("%d of 4 ranks are right: %s", n, &j.stderr)
	}
	if text := j.stderr.String(); strings.Contains(text, "10.79.0.") || strings.Contains(text, "127.0.0.1") ||
		!strings.Contains(text, "10.78.0.2") {
		t.Errorf("it went over other interfaces: %s", text)
	}
	ran := c.File("ran")
	c.run(nil, "-np", "4", "-H", "h1:2,h2:1,h0:1", "--network-interfaces", "net0,net1", "touch", ran).
		expect(1, "1 of 3\n  host h2: --network-interfaces net0,net1: none of these is an interface of this host "+
			"that is up and has an address: it has lo, net2, docker0")
	c.run(nil, "-np", "3", "-H", "h1:2,h2:1", "--network-interfaces", "net1,net2", "touch", ran).
		expect(1, "--network-interfaces net1,net2: none of these is an interface of this host.* it has lo, "+
			"net0, docker0")
	c.ip(1, "ip", "link", "add", "net8", "type", "bridge")
	c.run(nil, "-np", "2", "-H", "h1:2", "--network-interfaces", "net0,net8", "touch", ran).
		expect(1, `host h1: --network-interfaces net0,net8: .* net8 \(which is down\)`)
	if _, err := os.Stat(ran); err == nil {
		t.Error("something was run")
	}
}

// A cluster has IPv4 only on loopback.
func TestIPv6Only(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for h := range c.Hosts {
		c.ip(h, "ip", "-4", "address", "flush", "dev", c.Hosts[h].Interface)
		c.ip(h, "ip", "link", "delete", "docker0")
	}
	j := c.right(4, "six0:1,six1:2,six2:1")
	if text := j.stderr.String(); !strings.Contains(text, "[fd78::1]:") || strings.Contains(text, "10.78.") {
		t.Errorf("the rendezvous was not looked for at IPv6 addresses alone: %s", text)
	}
	c.right(2, "[fd78::2]:1,[fd78::3]:1", "GOROVOD_TLS=1")
}
