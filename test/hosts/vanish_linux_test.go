package hosts

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The interface of a host vanishes at a moment of the ranks' start. The job ends soon, with a message that names a host
// or a rank.
func TestAnInterfaceThatVanishes(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		after := time.Duration(rand.IntN(400)) * time.Millisecond
		t.Run(fmt.Sprint(i, " after ", after), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			j := c.run(does("loop", "GOROVOD_HEARTBEAT_SECONDS=5", "HOROVOD_GLOO_TIMEOUT_SECONDS=8"), "-np", "3", "-H",
				"h0:1,h1:1,h2:1", "--grace-period", "1", "sh", "-c", "echo ready; exec "+self())
			j.until("ready", 3)
			time.Sleep(after)
			c.ip(2, "ip", "link", "delete", c.Hosts[2].Interface)
			j.wait()
			j.ended(anyFailure, `(host h2|rank \d) .*(lost|no answer|has left|cannot be reached|waited [\d.]+s for)`)
		})
	}
}
