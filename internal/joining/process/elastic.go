package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// elasticity is this process's state in an elastic job.
var elasticity struct {
	client atomic.Pointer[elastic.Client] // nil in other jobs, and before the first Init
	commit atomic.Int64                   // 1 + the number of the newest commit; 0: none
	intact atomic.Bool                    // this process has the state of all members, so it needs no other's
	place  atomic.Pointer[elastic.Assignment]

	sets [][]int // the process sets of the last epoch, as the program asked for them. mu
}

// Membership says whether this process takes part in an elastic job.
type Membership int

const (
	NotElastic Membership = iota // the job is not elastic
	Member                       // the process takes part, or may
	Dismissed                    // the job has no place for the process: it must end, with code 0
	Abandoned                    // the launcher is gone: the process must end
)

var membershipNow atomic.Int32

// Elastic returns this process's Membership; NotElastic before Init.
func Elastic() Membership {
	if c := elasticity.client.Load(); c != nil && c.Err() != nil && Membership(membershipNow.Load()) == Member {
		return Abandoned
	}
	return Membership(membershipNow.Load())
}

// Committed notes that this process holds the state of a commit, from 0 on.
func Committed(number int64) { elasticity.commit.Store(number + 1) }

// Intact notes, for the next Init only, that this process has the state of all members and needs no other state.
func Intact() { elasticity.intact.Store(true) }

// NeedsSync reports whether the members of the last Init may have different states.
func NeedsSync() bool {
	a := elasticity.place.Load()
	return a == nil || a.Sync
}

// HostUpdates returns the news of the hosts since the last Init, and forgets it; 0 and NoUpdate if there is none.
func HostUpdates() (stamp int64, update membership.HostUpdate) {
	c := elasticity.client.Load()
	if c == nil {
		return 0, membership.NoUpdate
	}
	return c.Updates()
}

// AwaitHostUpdates blocks until HostUpdates has news. One goroutine may call it at a time. An error means that no news
// will come: the job is not elastic, its launcher is gone, or ctx has ended.
func AwaitHostUpdates(ctx context.Context) error {
	c := elasticity.client.Load()
	if c == nil {
		return errNotElastic
	}
	return c.AwaitUpdates(ctx)
}

var errNotElastic = errors.New("this process is no member of an elastic job")

// elasticInit asks the driver for a place and joins that epoch. If other workers die meanwhile, it asks again. The
// caller holds mu.
func elasticInit(ctx context.Context, c *config.Config, lookup func(string) (string, bool), sets [][]int) error {
	client := elasticity.client.Load()
	if client == nil {
		var err error
		if client, err = elastic.Dial(ctx, c.ElasticDriver, c.Told.Key, elastic.Options{Worker: c.ElasticWorker,
			TLS: c.Seal(), TrackFD: TrackFD, Lost: driverLost}); err != nil {
			return err
		}
		elasticity.client.Store(client)
		membershipNow.Store(int32(Member))
		elasticity.sets = sets
	}
	r := membership.Registration{Commit: elasticity.commit.Load() - 1, Intact: elasticity.intact.Swap(false),
		Sets: elasticity.sets}
	for {
		a, err := client.Register(ctx, r)
		if err != nil {
			if client.Err() == nil && ctx.Err() == nil {
				membershipNow.Store(int32(Dismissed))
			}
			return err
		}
		err = joinEpoch(ctx, c.Told.Key, lookup, a)
		if err == nil || ctx.Err() != nil {
			return err
		}
		r.Trouble, r.Intact = err.Error(), false
	}
}

// joinEpoch joins the world of one epoch.
func joinEpoch(ctx context.Context, key []byte, lookup func(string) (string, bool), a elastic.Assignment) error {
	c, err := config.Load(lookup) // loaded anew, because each world adopts rank 0's knobs
	if err != nil {
		return err
	}
	s := bootstrap.Assigned(c, key, a, time.Now().Add(c.Timeout))
	if err := join(ctx, s, c, clipSets(a.Sets, s.Place.Size)); err != nil {
		return fmt.Errorf("rank %d of %d on host %s: %w", s.Place.Rank, s.Place.Size, s.Place.Host, err)
	}
	elasticity.sets = a.Sets
	elasticity.place.Store(&a)
	return nil
}

// driverLost aborts this process's operations when its launcher is gone.
func driverLost(err error) {
	if w := current.Load(); w != nil {
		w.Abort(err)
	}
}

// clipSets reduces process sets to a world of size ranks. A set without a remaining rank is left out, and comes back
// when the job has grown.
func clipSets(sets [][]int, size int) [][]int {
	var clipped [][]int
	for _, s := range sets {
		if c := clip(s, size); len(c) > 0 || len(s) == 0 { // an empty list means all ranks
			clipped = append(clipped, c)
		}
	}
	return clipped
}

func clip(ranks []int, size int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r >= size })
}

// known finds an existing process set of an elastic job, because a process that came later adds a set that others have
// added before. In a job that has shrunk, a set of all its ranks is the world.
func known(w *world.World, ranks []int) (id int, ok bool) {
	if len(w.Config.ElasticDriver) == 0 {
		return 0, false
	}
	for _, s := range w.Engine.Sets() {
		if slices.Equal(s.Ranks, ranks) {
			id, ok = s.ID, true
			if id != 0 {
				break
			}
		}
	}
	return id, ok
}

// rememberSet keeps a set for later epochs.
func rememberSet(w *world.World, ranks []int) {
	mu.Lock()
	defer mu.Unlock()
	known := func(s []int) bool { return slices.Equal(s, ranks) }
	if len(w.Config.ElasticDriver) > 0 && current.Load() == w && !slices.ContainsFunc(elasticity.sets, known) {
		elasticity.sets = append(slices.Clone(elasticity.sets), slices.Clone(ranks))
	}
}

// forgetSet undoes rememberSet, or drops a set of Init.
func forgetSet(w *world.World, ranks []int) {
	mu.Lock()
	defer mu.Unlock()
	if len(w.Config.ElasticDriver) > 0 && current.Load() == w {
		elasticity.sets = slices.DeleteFunc(slices.Clone(elasticity.sets),
			func(s []int) bool { return slices.Equal(clip(s, w.Place.Size), ranks) })
	}
}
