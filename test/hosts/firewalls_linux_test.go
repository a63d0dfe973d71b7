package hosts

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

func init() {
	// pauses runs all collectives, computes for $PAUSE seconds, and runs them again.
	programs["pauses"] = func() int {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		err := hvd.InitContext(ctx)
		if err == nil {
			defer hvd.Shutdown()
			err = collectives(ctx)
		}
		if err == nil {
			seconds, _ := strconv.Atoi(os.Getenv("PAUSE"))
			time.Sleep(time.Duration(seconds) * time.Second)
			err = collectives(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("all is right")
		return 0
	}
}

// A firewall on a host forgets connections that have been idle for 3 seconds, and the ranks compute for longer. With
// something passing over each connection every second the job goes on; without that it ends, and the message names the
// rank and says what to look at.
func TestAFirewallThatForgets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.Hosts[1].Forgetful(t, 3)
	job := func(keepAlive string) *job {
		return c.run(does("pauses", "PAUSE=6", "GOROVOD_HEARTBEAT_SECONDS=5", "GOROVOD_KEEPALIVE_SECONDS="+keepAlive),
			"-np", "3", "-H", "h0:1,h1:1,h2:1", self())
	}
	j := job("1")
	j.expect(0)
	if n := strings.Count(j.stdout.String(), "all is right"); n != 3 {
		t.Errorf("%d of 3 ranks are right: %s", n, &j.stderr)
	}
	job("0").expect(1, `rank \d on host h\d \(pid \d+\) is lost: nothing has come from its host .* a firewall has `+
		"forgotten the connection, see GOROVOD_KEEPALIVE_SECONDS")
}
