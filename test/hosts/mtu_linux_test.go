package hosts

import (
	"os"
	"strings"
	"testing"
)

// A host whose packets are smaller or larger than the others' takes part as any other.
func TestOneHostsMTU(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, mtu := range []string{"576", "9000"} {
		c.ip(1, "ip", "link", "set", c.Hosts[1].Interface, "mtu", mtu)
		c.right(3, "h0:1,h1:1,h2:1")
	}
}

// All hosts send large packets, and the switch between them drops these without a word. The ranks meet, because small
// packets pass. The job ends, and the message says so.
func TestLargePacketsThatAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	begin := c.File("begin")
	j := c.run(does("collectives", "GOROVOD_HEARTBEAT_SECONDS=5"), "-np", "3", "-H", "h0:1,h1:1,h2:1", "sh", "-c",
		"echo ready; while [ ! -e "+begin+" ]; do sleep 0.05; done; exec "+self())
	j.until("ready", 3)
	for h := range c.Hosts { // ssh's connections are older
		c.ip(h, "ip", "link", "set", c.Hosts[h].Interface, "mtu", "9000")
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.wait()
	j.ended(1, "packets of 8948 bytes are sent again and again.*compare its MTU")
	if strings.Contains(j.stdout.String(), "all is right") {
		t.Error("nothing was lost")
	}
}
