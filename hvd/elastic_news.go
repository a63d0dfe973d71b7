package hvd

import (
	"context"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// news is the launcher's news of the hosts since the world was formed, until take takes it.
type news struct {
	mu     sync.Mutex // held during a reset, too
	stamp  int64
	update membership.HostUpdate
}

// hear adds the news that package process has, and returns it.
func (n *news) hear() (stamp int64, update membership.HostUpdate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if stamp, update = process.HostUpdates(); update != membership.NoUpdate {
		n.stamp, n.update = stamp, n.update|update
	}
	return stamp, update
}

// take returns the news and forgets it; NoUpdate if there is none.
func (n *news) take() (stamp int64, update membership.HostUpdate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stamp, update = n.stamp, n.update
	n.stamp, n.update = 0, membership.NoUpdate
	return stamp, update
}

// listen starts a goroutine that collects the news of the hosts. stop ends it. Outside of elastic jobs it ends by
// itself.
func (e *Elastic) listen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	guard.In(&listening, "news of the hosts", func(err error) { process.Fail(err.Error()) }, func() {
		for process.AwaitHostUpdates(ctx) == nil {
			stamp, update := e.news.hear()
			if l, ok := e.state.(HostListener); ok && update != membership.NoUpdate {
				l.OnHostsUpdated(time.Unix(stamp, 0), HostUpdate(update))
			}
		}
	})
	return func() {
		cancel()
		listening.Wait()
	}
}
