package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/reach"
	"github.com/gorovod/gorovod/internal/rendezvous"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/world"
)

// met is the offer by which this process's ranks have found one another: it serves all
// their generations. Guarded by mu.
var met *meet.Offer

// join joins the world. Where another launcher than ours has started the ranks, they
// meet first: rank 0 serves a rendezvous, and tells the others where, and the secret.
func join(ctx context.Context, c *config.Config, o world.Options) (*world.World, error) {
	if !c.StartedByOthers() {
		return world.Join(ctx, c, generation, o)
	}
	if !c.IsSet("HOROVOD_HOSTNAME") && c.Place.Host == "" {
		if name, err := os.Hostname(); err == nil {
			c.Hostname = name
		}
	}
	if met != nil {
		return joinAt(ctx, c, *met, o)
	}
	var withoutPMIx error // why, if that would have been the way
	overPMIx := func() (space meet.KeyValues, err error) {
		space, err = openPMIx(ctx, c, o.Log)
		withoutPMIx = err
		return space, err
	}
	board, err := meet.Choose(meet.Circumstances{Place: c.Place, Host: c.Hostname, Key: c.Key, Addrs: c.Rendezvous, Dir: c.RendezvousDir,
		Home: home(), Local: runtimeDir(), MPI: mpi.InUse(), PMIx: overPMIx})
	if err != nil {
		return nil, err
	}
	o.Log.Debug("the ranks were started by "+string(c.Place.Launcher)+", and meet by "+board.String(), "rank", c.Rank, "size", c.Size)
	var w *world.World
	if c.Rank == 0 {
		w, err = offer(ctx, c, board, o)
	} else {
		w, err = find(ctx, c, board, o)
		if sweeper, ok := board.(meet.Sweeper); ok && err != nil {
			sweeper.Sweep() // rank 0 may have been killed
		}
	}
	if err != nil && withoutPMIx != nil {
		err = fmt.Errorf("%w (PMIx is of no use here: %w)", err, withoutPMIx)
	}
	return w, err
}

// find is the part of the other ranks: they find rank 0, and join.
func find(ctx context.Context, c *config.Config, board meet.Board, o world.Options) (*world.World, error) {
	var stale *meet.Offer
	for {
		there, err := board.Read(ctx, stale)
		if err == nil && there.Trouble != "" {
			err = fmt.Errorf("rank 0 cannot serve the rendezvous: %s", there.Trouble)
		}
		if err != nil {
			return nil, fmt.Errorf("find rank 0 by %v: %w", board, err)
		}
		w, err := joinAt(ctx, c, there, o)
		switch {
		case err == nil:
			met = &there
			return w, nil
		case !errors.Is(err, rendezvous.ErrNoServer) || ctx.Err() != nil:
			return nil, err
		}
		o.Log.Debug("rank 0 is not where it was said to be; trying again", "reason", err)
		stale = &there
	}
}

// joinAt joins the world at the rendezvous of an offer.
func joinAt(ctx context.Context, c *config.Config, at meet.Offer, o world.Options) (*world.World, error) {
	c.Rendezvous = at.Addrs
	if len(at.Key) > 0 {
		c.Key = at.Key
	}
	return world.Join(ctx, c, generation, o)
}

// offer is rank 0's part: it serves, tells the others, and joins.
func offer(ctx context.Context, c *config.Config, board meet.Board, o world.Options) (*world.World, error) {
	mine := meet.Offer{}
	key := c.Key
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
		mine.Key = key
	}
	l, addrs, err := listenFor(c, board)
	if err != nil {
		mine = meet.Offer{Trouble: err.Error()}
		board.Publish(ctx, mine) // spares the others the time-out
		return nil, fmt.Errorf("serve the rendezvous: %w", err)
	}
	mine.Addrs = addrs
	if l != nil {
		serveOn(l, key, c.Size, o.Log)
	}
	withdraw, err := board.Publish(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("tell the other ranks by %v: %w", board, err)
	}
	defer withdraw() // all have met, or this rank gives up
	mine.Key = key
	w, err := joinAt(ctx, c, mine, o)
	if err == nil {
		met = &mine
	}
	return w, err
}

// listenFor listens for the other ranks where they will look: at the addresses that
// they know already, on loopback where they are on this host, else on this host's
// addresses. l is nil where somebody else serves.
func listenFor(c *config.Config, board meet.Board) (l net.Listener, addrs []string, err error) {
	if f, ok := board.(*meet.Fixed); ok {
		l, err := listenAt(f.Listen)
		if err != nil && !f.Elsewhere {
			return nil, nil, err
		}
		return l, f.Addrs, nil
	}
	return listenAcross(c.Interfaces, c.Place.OneHost())
}

// listenAcross listens on loopback where all ranks are on this host, else on the addresses of these
// interfaces, or of all.
func listenAcross(interfaces []string, oneHost bool) (l net.Listener, addrs []string, err error) {
	if oneHost && len(interfaces) == 0 {
		if l, err := link.Listen(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err == nil {
			return l, []string{l.Addr().String()}, nil
		}
	}
	var own []reach.Own
	if len(interfaces) > 0 {
		if own, err = reach.OnInterfaces(interfaces); err != nil {
			err = fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w", strings.Join(interfaces, ","), err)
		}
	} else {
		own, err = reach.OnHost()
	}
	if err == nil {
		own, err = reach.Best(own, netip.Addr{})
	}
	if err != nil {
		return nil, nil, err
	}
	var at []netip.Addr
	for _, a := range own {
		at = append(at, a.Prefix.Addr())
	}
	all, err := link.Listen(at...)
	if err != nil {
		return nil, nil, err
	}
	port := all.Addr().(*net.TCPAddr).Port
	for _, a := range at {
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(port)).String())
	}
	return all, addrs, nil
}

// listenAt listens at the first of these addresses that is this host's and free.
func listenAt(addrs []string) (net.Listener, error) {
	var all []error
	for _, a := range addrs {
		l, err := net.Listen("tcp", a)
		if err == nil {
			return l, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

func home() string {
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return dir
}

// runtimeDir is this user's directory on this host, the same for all processes,
// whatever their environment: in memory, if there is such a place.
func runtimeDir() string {
	name := "gorovod-" + strconv.Itoa(os.Geteuid())
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return filepath.Join("/dev/shm", name)
	}
	return filepath.Join("/tmp", name)
}
