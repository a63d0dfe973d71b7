package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// processes are the MPI processes that make up the world.
type processes struct {
	*mpi.Communicator
	library string
	sets    []uintptr // communicators of the program, each of them a process set
}

// openMPI initialises MPI, and makes a communicator of the world's processes: those of o, otherwise all.
func (p *Process) openMPI(ctx context.Context, c *config.Config, o Options) (*processes, error) {
	l, err := mpi.Load(c.MPILibrary)
	if err != nil {
		return nil, err
	}
	if err := l.Init(c.MPIThreadsDisable); err != nil {
		return nil, err
	}
	all := &processes{library: l.Version()}
	if p.EndsByExit {
		l.FinalizeAtExit(func(err error) {
			at := roster.Place{Rank: -1, Host: hostname(c)}
			if all.Communicator != nil {
				at.Rank = all.Rank()
			}
			o.Log(at).Error(err.Error())
		})
	}
	if o.MPIComms != nil {
		all.sets = o.MPIComms(l)
	}
	switch {
	case len(all.sets) > 0:
		if all.Communicator, err = l.Duplicate(ctx, all.sets[0]); err != nil {
			err = fmt.Errorf("communicator 0: %w", err)
		}
		all.sets = all.sets[1:]
	case len(o.MPIRanks) > 0 && c.Controller == config.MPI:
		all.Communicator, err = l.Subset(ctx, l.World(), o.MPIRanks)
	default:
		all.Communicator, err = l.Duplicate(ctx, l.World())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Version(), err)
	}
	return all, nil
}

// meetOverMPI is for processes of MPI. Rank 0 tells the others over MPI where it serves the rendezvous. The function
// completes s with the places and sets that MPI knows.
func (p *Process) meetOverMPI(ctx context.Context, c *config.Config, all *processes, s *Start,
	o Options, join Join) error {
	failed := func(err error) error {
		return fmt.Errorf("process %d of %d of %s: %w", all.Rank(), all.Size(), all.library, err)
	}
	place, oneHost, err := all.place(ctx, c)
	if err != nil {
		return failed(err)
	}
	if s.Sets, err = all.listSets(ctx); err != nil {
		return failed(err)
	}
	s.Place = place
	if place.Size == 1 {
		return join(ctx, *s)
	}
	_, err = p.meetBy(ctx, *s, meeting{allgather{all.Communicator}, c.Interfaces, oneHost, o.Lookup,
		o.Log(place)}, join)
	return err
}

// presence is each process's message to the others.
type presence struct {
	Host    string `json:"host"`
	Network string `json:"network"`
}

// place returns this process's place: the ranks are MPI's, and hosts differ by name. oneHost says that all processes
// are on the network of this one.
func (all *processes) place(ctx context.Context, c *config.Config) (p roster.Place, oneHost bool, err error) {
	here := presence{Host: hostname(c)}
	network, _ := os.Readlink("/proc/self/ns/net")
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	here.Network = strings.TrimSpace(string(boot)) + network
	there := make([]presence, all.Size())
	if err := exchange(ctx, all.Communicator, here, there); err != nil {
		return p, false, err
	}
	hosts := make([]string, len(there))
	oneHost = true
	for r, p := range there {
		hosts[r] = p.Host
		oneHost = oneHost && p.Network == here.Network
	}
	p = roster.Place{Rank: all.Rank(), Size: len(hosts), Host: here.Host}
	p.Complete(hosts)
	return p, oneHost, nil
}

// allgather is a Store over MPI: one call carries rank 0's offer to all.
type allgather struct{ all *mpi.Communicator }

var _ meet.Store = allgather{}

func (allgather) String() string { return "MPI" }

func (g allgather) Publish(ctx context.Context, o meet.Offer) (withdraw func(), err error) {
	return func() {}, exchange(ctx, g.all, o, make([]meet.Offer, g.all.Size()))
}

func (g allgather) Read(ctx context.Context, stale *meet.Offer) (meet.Offer, error) {
	if stale != nil {
		return meet.Offer{}, fmt.Errorf("rank 0 does not serve the rendezvous at %v, or has stopped", stale.Addrs)
	}
	offers := make([]meet.Offer, g.all.Size())
	err := exchange(ctx, g.all, meet.Offer{}, offers)
	return offers[0], err
}

// listSets lists the different process sets that the processes have given as communicators, in the order of their
// ranks, the same on all.
func (all *processes) listSets(ctx context.Context) ([][]int, error) {
	if len(all.sets) == 0 {
		return nil, nil
	}
	type said struct {
		Sets [][]int `json:"sets"`
		Err  string  `json:"err,omitempty"`
	}
	var mine said
	for i, handle := range all.sets {
		ranks, err := all.Ranks(handle)
		if err != nil {
			mine.Err = fmt.Sprintf("communicator %d: %v", i+1, err)
			break
		}
		slices.Sort(ranks)
		mine.Sets = append(mine.Sets, ranks)
	}
	theirs := make([]said, all.Size())
	if err := exchange(ctx, all.Communicator, mine, theirs); err != nil {
		return nil, err
	}
	var sets [][]int
	for r, s := range theirs {
		if s.Err != "" {
			return nil, fmt.Errorf("rank %d: %s", r, s.Err)
		}
		sets = append(sets, s.Sets...)
	}
	slices.SortFunc(sets, slices.Compare[[]int])
	return slices.CompactFunc(sets, slices.Equal[[]int]), nil
}

// exchange sends mine to all processes, and fills in theirs.
func exchange[T any](ctx context.Context, all *mpi.Communicator, mine T, theirs []T) error {
	raw, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	values, err := all.Allgather(ctx, raw)
	if err != nil {
		return fmt.Errorf("tell the other processes: %w", err)
	}
	for r, v := range values {
		if err := json.Unmarshal(v, &theirs[r]); err != nil {
			return fmt.Errorf("what process %d says: %w", r, err)
		}
	}
	return nil
}
