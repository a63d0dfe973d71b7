package process

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/config"
)

// EndsByExit says that the process ends by C's exit, as one of Python does, so that MPI can be
// finalized then, and Init may follow Shutdown. Else Shutdown finalizes it. Set before Init.
var EndsByExit bool

// MPIBuilt reports that MPI can be used: a libmpi has been found and loaded, and it is not initialised by that.
func MPIBuilt(lookup func(string) (string, bool)) bool {
	name, _ := lookup("GOROVOD_MPI_LIBRARY")
	_, err := mpi.Load(name)
	return err == nil
}

// MPIEnabled reports that the ranks have found one another over MPI, or that it carries the data.
func MPIEnabled() bool {
	w := current.Load()
	return w != nil && (w.Config.Controller == config.MPI || w.Config.CPUOperations == config.MPI)
}

// GlooEnabled reports the same of Gloo, for which the native ways stand.
func GlooEnabled() bool {
	w := current.Load()
	return w == nil || w.Config.Controller == config.Gloo || w.Config.CPUOperations == config.Gloo
}

// MPIThreadsSupported reports that MPI is in use, and that the program may call it on any thread.
func MPIThreadsSupported() bool {
	if !MPIEnabled() {
		return false
	}
	l, err := mpi.Load("")
	return err == nil && l.ThreadsSupported()
}

// MPISet is the process set whose members are the processes of a communicator of the program's.
// argument is an MPI_Comm, passed as if it were a pointer.
func MPISet(argument uintptr) (id int, ok bool) {
	mu.Lock()
	defer mu.Unlock()
	w := current.Load()
	if w == nil || overMPI == nil {
		return 0, false
	}
	l, err := mpi.Load("")
	if err != nil {
		return 0, false
	}
	ranks, err := overMPI.Ranks(l.HandleOf(argument))
	if err != nil {
		return 0, false
	}
	for i, r := range ranks {
		ranks[i] = w.RankOfMPI(r)
	}
	slices.Sort(ranks)
	for _, s := range w.Engine.Sets() {
		if slices.Equal(s.Ranks, ranks) {
			return s.ID, true
		}
	}
	return 0, false
}

// withMPI is an environment in which the ranks find one another over MPI.
func withMPI(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "HOROVOD_CONTROLLER" {
			return string(config.MPI), true
		}
		return lookup(name)
	}
}

// startMPI initialises MPI, and returns the processes of the world. Where these find one another over
// MPI, it fills in c and the sets of o.
func startMPI(ctx context.Context, c *config.Config, o *Options) (*mpi.Communicator, error) {
	l, err := mpi.Load(c.MPILibrary)
	if err != nil {
		return nil, err
	}
	if err := l.Init(c.MPIThreadsDisable); err != nil {
		return nil, err
	}
	if EndsByExit {
		l.FinalizeAtExit()
	}
	var comms []uintptr
	if o.MPIComms != nil {
		comms = o.MPIComms(l)
	}
	var all *mpi.Communicator
	switch {
	case len(comms) > 0:
		if all, err = l.Duplicate(ctx, comms[0]); err != nil {
			err = fmt.Errorf("communicator 0: %w", err)
		}
	case len(o.MPIRanks) > 0 && c.Controller == config.MPI:
		all, err = l.Subset(ctx, l.World(), o.MPIRanks)
	default:
		all, err = l.Duplicate(ctx, l.World())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Version(), err)
	}
	if c.Controller != config.MPI {
		return all, nil
	}
	if err := meetOverMPI(ctx, c, all); err != nil {
		return nil, fmt.Errorf("process %d of %d of %s: %w", all.Rank(), all.Size(), l.Version(), err)
	}
	if len(comms) > 1 {
		sets, err := setsOf(ctx, all, comms[1:])
		if err != nil {
			return nil, fmt.Errorf("process %d of %d of %s: %w", all.Rank(), all.Size(), l.Version(), err)
		}
		o.Sets = append(sets, o.Sets...)
	}
	return all, nil
}

// stopMPI ends the use of MPI after the world has been left.
func stopMPI(processes *mpi.Communicator) {
	processes.Free()
	if l, err := mpi.Load(""); err == nil && !EndsByExit {
		l.Finalize()
	}
}

// presence is what each process tells the others.
type presence struct {
	Host    string `json:"host"`
	Network string `json:"network"`
}

// meetOverMPI fills in c: the ranks are MPI's, hosts have their names, and rank 0 serves the
// rendezvous and tells the others by MPI where, and the job's secret.
func meetOverMPI(ctx context.Context, c *config.Config, all *mpi.Communicator) error {
	if !c.IsSet("HOROVOD_HOSTNAME") {
		if name, err := os.Hostname(); err == nil {
			c.Hostname = name
		}
	}
	network, _ := os.Readlink("/proc/self/ns/net")
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	here := presence{c.Hostname, strings.TrimSpace(string(boot)) + network}
	there := make([]presence, all.Size())
	if err := exchange(ctx, all, here, there); err != nil {
		return err
	}
	hosts := make([]string, len(there))
	oneHost := true
	for r, p := range there {
		hosts[r] = p.Host
		oneHost = oneHost && p.Network == here.Network
	}
	place(c, hosts, all.Rank())
	if c.Size == 1 {
		c.Rendezvous = nil
		return nil
	}
	var mine meet.Offer
	if c.Rank == 0 {
		mine = offerOverMPI(c, oneHost)
	}
	offers := make([]meet.Offer, all.Size())
	if err := exchange(ctx, all, mine, offers); err != nil {
		return err
	}
	zero := offers[0]
	if zero.Trouble != "" {
		return fmt.Errorf("rank 0 on host %s cannot serve the rendezvous: %s", hosts[0], zero.Trouble)
	}
	c.Rendezvous = zero.Addrs
	if len(zero.Key) > 0 {
		c.Key = zero.Key
	}
	if len(c.Key) == 0 {
		return errors.New("rank 0 has a HOROVOD_SECRET_KEY, and this rank has none")
	}
	return nil
}

// offerOverMPI serves the rendezvous. The secret is a fresh one, unless the environment has one: then
// nobody is told, since all have it.
func offerOverMPI(c *config.Config, oneHost bool) (o meet.Offer) {
	l, addrs, err := listenAcross(c.Interfaces, oneHost)
	if err != nil {
		return meet.Offer{Trouble: err.Error()}
	}
	key := c.Key
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
		o.Key = key
	}
	serveOn(l, key, c.Size, logger(c))
	o.Addrs = addrs
	return o
}

// place fills in where the rank stands among the others: hosts are counted in the order of their
// first ranks, ranks on a host in their own.
func place(c *config.Config, hosts []string, rank int) {
	c.Rank, c.Size = rank, len(hosts)
	local := make([]int, len(hosts)) // local rank, by rank
	sizes := make(map[string]int)
	for r, h := range hosts {
		local[r] = sizes[h]
		sizes[h]++
	}
	c.LocalRank, c.LocalSize = local[rank], sizes[hosts[rank]]
	c.CrossRank, c.CrossSize = 0, 0
	var passed bool
	seen := make(map[string]bool)
	for _, h := range hosts {
		if seen[h] {
			continue
		}
		seen[h] = true
		if h == hosts[rank] {
			passed = true
		}
		if sizes[h] > c.LocalRank {
			c.CrossSize++
			if !passed {
				c.CrossRank++
			}
		}
	}
}

// setsOf lists the process sets that the processes have given as communicators, each on its own: all
// different ones, in the order of their ranks, the same on all.
func setsOf(ctx context.Context, all *mpi.Communicator, comms []uintptr) ([][]int, error) {
	type said struct {
		Sets [][]int `json:"sets"`
		Err  string  `json:"err,omitempty"`
	}
	var mine said
	for i, handle := range comms {
		ranks, err := all.Ranks(handle)
		if err != nil {
			mine.Err = fmt.Sprintf("communicator %d: %v", i+1, err)
			break
		}
		slices.Sort(ranks)
		mine.Sets = append(mine.Sets, ranks)
	}
	theirs := make([]said, all.Size())
	if err := exchange(ctx, all, mine, theirs); err != nil {
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

// exchange tells all processes something, and fills in what each says.
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
