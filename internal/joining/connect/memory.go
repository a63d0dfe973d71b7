package connect

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/transport/hosts"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// shareMemory attaches the ranks of each host to a segment of their own. It returns the lists of ranks that really
// share memory, the same on all ranks. If one rank of a host cannot attach, each rank of the host gets a list of its
// own, and trouble has the reason, that of the first such host. local is nil if this rank is alone. shareMemory leaves
// time for TCP, and does not wait for a rank that has died.
func (c *connector) shareMemory(ctx context.Context) (byHost [][]int, local *shm.Network, trouble string, err error) {
	insisted := c.Config.Transport == "shm"
	supposed := c.Members.SupposedHosts()
	if len(supposed) > 1 {
		trouble = "the ranks are on several hosts"
		if insisted || len(supposed) == c.Place.Size {
			return supposed, nil, trouble, nil
		}
	}
	mine := roster.HostOf(supposed, c.Place.Rank)
	const attached = "ok"
	verdict := attached
	if len(mine) > 1 {
		if local, err = c.attach(ctx, mine, len(supposed) > 1); err != nil {
			verdict = err.Error()
			verdict = verdict[:min(len(verdict), 4096)]
		}
	}
	verdicts, err := c.Session.Exchange(ctx, "shm", []byte(verdict))
	if err != nil {
		if local != nil {
			local.Close()
		}
		return nil, nil, "", err
	}
	for _, ranks := range supposed {
		var troubles []string // one reason, if the ranks could exchange it
		for _, r := range ranks {
			if v := string(verdicts[r]); v != attached && !slices.Contains(troubles, v) {
				troubles = append(troubles, v)
			}
		}
		if len(troubles) == 0 {
			byHost = append(byHost, ranks)
			continue
		}
		for _, r := range ranks {
			byHost = append(byHost, []int{r})
		}
		why := strings.Join(troubles, "; ")
		if trouble == "" {
			trouble = why
		}
		if ranks[0] == c.Place.Rank && !insisted {
			c.Log.Warn("shared memory can't be used; TCP is used instead", "ranks", ranks, "reason", why)
		}
	}
	slices.SortFunc(byHost, func(a, b []int) int { return a[0] - b[0] })
	if local != nil && len(roster.HostOf(byHost, c.Place.Rank)) == 1 {
		local.Close()
		local = nil
	}
	return byHost, local, trouble, nil
}

// attach attaches this rank to the segment of its host. several: the job has other hosts.
func (c *connector) attach(ctx context.Context, ranks []int, several bool) (*shm.Network, error) {
	limit := c.Config.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, limit/3) // a third suffices, because all ranks have met already
	defer cancel()
	news, dead := c.NextDeath()
	if dead {
		cancel()
	}
	guard.Go("the joining", func(error) { cancel() }, func() {
		select {
		case <-news:
			cancel() // then the exchange below fails with the launcher's report
		case <-ctx.Done():
		}
	})
	boards := 0
	if several {
		boards = hosts.BoardBytes(len(ranks), c.cards(), c.early())
	}
	return shm.Open(ctx, shm.Config{Rank: slices.Index(ranks, c.Place.Rank), Size: len(ranks), Ranks: ranks,
		Key: c.Secret, Job: strings.Join(c.Peers, ","), Generation: c.Generation, Timeout: c.Config.Timeout,
		Cards: c.cards(), Alarm: several,
		BoardBytes: boards, Cores: runtime.GOMAXPROCS(0), Staged: !c.Config.SingleCopy, HugePages: c.Config.HugePages,
		Describe: c.Members.Describe, Died: c.Vanished, TrackFD: c.TrackFD})
}
