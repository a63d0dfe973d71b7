package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// meeting is a way for ranks without a rendezvous to find one another.
type meeting struct {
	store      meet.Store
	interfaces []string // on which rank 0 may serve; empty: all
	oneHost    bool     // all ranks are known to be on this host
	lookup     observer.Lookup
	log        *slog.Logger
}

// meet is for ranks that another launcher has started. Rank 0 serves a rendezvous, and tells the others its address
// and the secret. Then each rank calls join. Ranks that have met once meet again at the same place.
func (p *Process) meet(ctx context.Context, c *config.Config, s Start, o Options, join Join) error {
	if p.met != nil {
		return s.at(*p.met, ctx, join)
	}
	log := o.Log(s.Place)
	var withoutPMIx error // why PMIx cannot be used, if it would have been the way
	overPMIx := func() (space meet.KeyValues, err error) {
		space, err = p.openPMIx(ctx, c, log)
		withoutPMIx = err
		return space, err
	}
	store, err := meet.Choose(meet.Circumstances{Place: c.Told.Place, Host: s.Place.Host, Key: c.Told.Key,
		Addrs: c.Told.Rendezvous, Dir: c.RendezvousDir, Home: home(), Local: runtimeDir(), MPI: mpi.InUse(),
		PMIx: overPMIx})
	if err != nil {
		return err
	}
	log.Debug("the ranks were started by "+string(c.Told.Place.Launcher)+", and meet by "+store.String(), "rank",
		s.Place.Rank, "size", s.Place.Size)
	met, err := p.meetBy(ctx, s, meeting{store, c.Interfaces, c.Told.Place.OneHost(), o.Lookup, log}, join)
	if err == nil {
		p.met = &met
	} else if withoutPMIx != nil {
		err = fmt.Errorf("%w (PMIx is of no use here: %w)", err, withoutPMIx)
	}
	return err
}

// meetBy lets the ranks meet by a store and join. It returns their offer.
func (p *Process) meetBy(ctx context.Context, s Start, m meeting, join Join) (meet.Offer, error) {
	if s.Place.Rank == 0 {
		return p.offer(ctx, s, m, join)
	}
	met, err := find(ctx, s, m, join)
	if sweeper, ok := m.store.(meet.Sweeper); ok && err != nil {
		sweeper.Sweep() // rank 0 may have been killed
	}
	return met, err
}

// offer is rank 0's part: it serves, publishes its offer, and joins. It makes a fresh secret. If all ranks already have
// a secret, the offer has none.
func (p *Process) offer(ctx context.Context, s Start, m meeting, join Join) (meet.Offer, error) {
	mine := meet.Offer{}
	key := s.Secret
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
		mine.Key = key
	}
	l, addrs, err := listenFor(m)
	if err != nil {
		m.store.Publish(ctx, meet.Offer{Trouble: err.Error()}) // spares the others the time-out
		return mine, fmt.Errorf("serve the rendezvous: %w", err)
	}
	mine.Addrs = addrs
	if l != nil {
		p.serve(l, addrs, key, s.Place.Size, m.lookup, m.log)
	}
	withdraw, err := m.store.Publish(ctx, mine)
	if err != nil {
		return mine, fmt.Errorf("tell the other ranks by %v: %w", m.store, err)
	}
	defer withdraw() // by then all have met, or this rank gives up
	mine.Key = key
	return mine, s.at(mine, ctx, join)
}

// find is the other ranks' part: they find rank 0, and join.
func find(ctx context.Context, s Start, m meeting, join Join) (there meet.Offer, err error) {
	var stale *meet.Offer
	for {
		there, err = m.store.Read(ctx, stale)
		if err == nil && there.Trouble != "" {
			err = fmt.Errorf("rank 0 cannot serve the rendezvous: %s", there.Trouble)
		}
		if err != nil {
			return there, fmt.Errorf("find rank 0 by %v: %w", m.store, err)
		}
		err = s.at(there, ctx, join)
		if !errors.Is(err, rendezvous.ErrNoServer) || ctx.Err() != nil {
			return there, err
		}
		m.log.Debug("rank 0 is not where it was said to be; trying again", "reason", err)
		stale = &there
	}
}

// at joins at the rendezvous of an offer.
func (s Start) at(o meet.Offer, ctx context.Context, join Join) error {
	s.Peers = o.Addrs
	if len(o.Key) > 0 {
		s.Secret = o.Key
	}
	if len(s.Secret) == 0 {
		return errors.New("rank 0 has a HOROVOD_SECRET_KEY, and this rank has none")
	}
	return join(ctx, s)
}

func home() string {
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return dir
}

// runtimeDir is this user's directory on this host, in memory if possible. It is the same for all processes, whatever
// their environment.
func runtimeDir() string {
	name := "gorovod-" + strconv.Itoa(os.Geteuid())
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return filepath.Join("/dev/shm", name)
	}
	return filepath.Join("/tmp", name)
}
