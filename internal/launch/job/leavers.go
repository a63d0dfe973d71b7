package job

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/discovery"
	"github.com/gorovod/gorovod/internal/launch/remote"
)

// leftPause is how long a host that has left is not used although the discovery script still lists it: a drained pod
// ends soon after its agent.
const leftPause = 10 * time.Second

// leavers are those hosts of a discovery script whose agents have said that they leave.
type leavers struct {
	job *elasticJob

	mu    sync.Mutex
	hosts map[string]bool
}

// without returns discover without the hosts that leave.
func (l *leavers) without(discover func(context.Context) ([]membership.Host, error)) func(context.Context) (
	[]membership.Host, error) {
	return func(ctx context.Context) ([]membership.Host, error) {
		hosts, err := discover(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.DeleteFunc(hosts, func(h membership.Host) bool { return l.hosts[h.Name] }), err
	}
}

// await returns when a crew is lost. If the crew's agent says before that its host leaves:
//  1. The discovery leaves the host out.
//  2. The driver lets the host's workers leave.
//  3. The crew is closed.
func (l *leavers) await(c *remote.Crew) {
	select {
	case why := <-c.Leaves:
		l.job.say("host %s leaves the job: %s", c.Host(), why)
	case <-c.Lost():
		return
	}
	l.set(c.Host(), true)
	time.AfterFunc(2*discovery.Interval, func() { // by then the driver has discovered that the host is gone
		l.job.driver.Vacated(c.Host(), c.Close)
	})
	<-c.Lost()
	time.AfterFunc(leftPause, func() { l.set(c.Host(), false) })
}

func (l *leavers) set(host string, leaves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leaves {
		l.hosts[host] = true
	} else {
		delete(l.hosts, host)
	}
}
