// Package bootstrap finds out that this process is rank r of n. There are four ways: horovodrun has set all variables
// (Launched), the driver of an elastic job assigns a place (Assigned), another launcher has started the process
// (meet.go), or MPI has (mpi.go). Each way ends in the same value, a Start, with which package world joins.
//
// To support another scheduler, add one file to package environment: a pure function of its variables. If its ranks
// need a way of their own to find one another, add a Store to package meet.
package bootstrap

import (
	"os"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// Start is what a process needs to join its peers, however it was started.
type Start struct {
	Place roster.Place
	// Claim is the part of Place that Horovod's variables have set. The ranks check their claims together.
	Claim roster.Claim
	// Assigned says that the driver of an elastic job has chosen the place. Several of its hosts may be one machine, as
	// with the tasks of Spark: the program that started them has given each its own GPUs.
	Assigned bool
	// Peers are the addresses (host:port) at which the rendezvous may be, the likeliest first; empty for a world of
	// one.
	Peers []string
	// Secret is the job's secret. Ranks prove to one another that they know it.
	Secret []byte
	// Generation is the number of the world among the job's worlds.
	Generation uint64
	// Deadline is when all ranks must have joined; zero: never.
	Deadline time.Time

	// MPI holds the processes of the world, not necessarily in the order of the ranks; nil if MPI has no part in it.
	MPI *mpi.Communicator
	// Sets are the process sets that the program has given as MPI communicators.
	Sets [][]int
}

// Launched returns the Start of a process for which horovodrun, or anybody else, has set Horovod's variables.
func Launched(c *config.Config, generation uint64, deadline time.Time) Start {
	s := Start{Place: placeOf(c), Peers: c.Told.Rendezvous, Secret: c.Told.Key, Generation: generation,
		Deadline: deadline}
	if c.IsSet("HOROVOD_LOCAL_SIZE") {
		s.Claim.LocalRank, s.Claim.LocalSize = c.Told.LocalRank, c.Told.LocalSize
	}
	if c.IsSet("HOROVOD_CROSS_SIZE") {
		s.Claim.CrossRank, s.Claim.CrossSize = c.Told.CrossRank, c.Told.CrossSize
	}
	return s
}

// Assigned returns the Start of an elastic job's worker in one epoch. key is the job's secret, from which each epoch
// derives its own.
func Assigned(c *config.Config, key []byte, a elastic.Assignment, deadline time.Time) Start {
	p := a.Place
	return Start{
		Place: roster.Place{Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, LocalSize: p.LocalSize,
			CrossRank: p.CrossRank, CrossSize: p.CrossSize, Host: c.Told.Hostname},
		Claim: roster.Claim{LocalRank: p.LocalRank, LocalSize: p.LocalSize, CrossRank: p.CrossRank,
			CrossSize: p.CrossSize},
		Assigned: true, Peers: a.Addrs, Secret: elastic.EpochKey(key, a.Epoch), Generation: a.Epoch, Deadline: deadline,
	}
}

// placeOf returns the place that Horovod's variables set.
func placeOf(c *config.Config) roster.Place {
	return roster.Place{Rank: c.Told.Rank, Size: c.Told.Size, LocalRank: c.Told.LocalRank, LocalSize: c.Told.LocalSize,
		CrossRank: c.Told.CrossRank, CrossSize: c.Told.CrossSize, Host: c.Told.Hostname}
}

// launchersPlace returns the place that another launcher's variables set, as far as they set one.
func launchersPlace(c *config.Config) roster.Place {
	p := c.Told.Place
	host := p.Host
	if host == "" || c.IsSet("HOROVOD_HOSTNAME") {
		host = hostname(c)
	}
	return roster.Place{Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, LocalSize: p.LocalSize,
		CrossRank: p.CrossRank, CrossSize: p.CrossSize, Host: host}
}

// hostname returns HOROVOD_HOSTNAME, or this host's own name if that is not set.
func hostname(c *config.Config) string {
	if !c.IsSet("HOROVOD_HOSTNAME") {
		if name, err := os.Hostname(); err == nil {
			return name
		}
	}
	return c.Told.Hostname
}
