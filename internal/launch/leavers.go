package launch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// leftPause is for how long a host that has left is not used although the discovery script lists it: a pod that is
// drained ends soon after its agent.
const leftPause = 10 * time.Second

// leavers are the hosts of a discovery script whose agents have said that they leave.
type leavers struct {
	job *elasticJob

	mu    sync.Mutex
	hosts map[string]bool
}

// without is discover without these hosts.
func (l *leavers) without(discover func(context.Context) ([]membership.Host, error)) func(context.Context) (
	[]membership.Host, error) {
	return func(ctx context.Context) ([]membership.Host, error) {
		hosts, err := discover(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.DeleteFunc(hosts, func(h membership.Host) bool { return l.hosts[h.Name] }), err
	}
}

// await returns when a crew is lost. If it says before that its host leaves, the host's workers leave in order, and
// then the crew is closed.
func (l *leavers) await(c *remoteCrew) {
	select {
	case why := <-c.leaves:
		l.job.say("host %s leaves the job: %s", c.host, why)
	case <-c.Lost():
		return
	}
	l.set(c.host, true)
	time.AfterFunc(2*discoverEvery, func() { // when the driver knows
		l.job.driver.Vacated(c.host, c.Close)
	})
	<-c.Lost()
	time.AfterFunc(leftPause, func() { l.set(c.host, false) })
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
