// Package bootstrap is how this process comes to be rank r of n: horovodrun has told it all (Launched), the
// driver of an elastic job has given it a place (Assigned), another launcher has started it (meet.go), or MPI has
// (mpi.go). Each way ends in the same value, a Start, with which package world joins.
//
// A new environment, such as another scheduler's, is one file in package environment: a pure function of its
// variables. Where its ranks need a way of their own to find one another, that is a Store in package meet.
package bootstrap

import (
	"os"
	"time"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/roster"
)

// Start is what a process needs to join its peers, however it was started.
type Start struct {
	Place roster.Place
	// Claim is what Horovod's variables have told of the Place. The ranks check it together.
	Claim roster.Claim
	// Peers are where the rendezvous may be (host:port), the likeliest first; empty for a world of one.
	Peers []string
	// Secret is the job's: ranks prove to one another that they know it.
	Secret []byte
	// Generation counts the worlds that the job has had.
	Generation uint64
	// Deadline is until when all ranks must have joined; zero: for ever.
	Deadline time.Time

	// MPI are the processes of the world, not always in the order of the ranks; nil if MPI has no part in it.
	MPI *mpi.Communicator
	// Sets are the process sets that the program has given as communicators of MPI.
	Sets [][]int
}

// Launched is the start of a process that horovodrun has started, or whoever else sets Horovod's variables.
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

// Assigned is the start of a worker of an elastic job in one epoch. key is the job's secret, of which each epoch has
// its own.
func Assigned(c *config.Config, key []byte, a elastic.Assignment, deadline time.Time) Start {
	p := a.Place
	return Start{
		Place: roster.Place{Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, LocalSize: p.LocalSize,
			CrossRank: p.CrossRank, CrossSize: p.CrossSize, Host: c.Told.Hostname},
		Claim: roster.Claim{LocalRank: p.LocalRank, LocalSize: p.LocalSize, CrossRank: p.CrossRank,
			CrossSize: p.CrossSize},
		Peers: a.Addrs, Secret: elastic.EpochKey(key, a.Epoch), Generation: a.Epoch, Deadline: deadline,
	}
}

// placeOf is the place that Horovod's variables tell.
func placeOf(c *config.Config) roster.Place {
	return roster.Place{Rank: c.Told.Rank, Size: c.Told.Size, LocalRank: c.Told.LocalRank, LocalSize: c.Told.LocalSize,
		CrossRank: c.Told.CrossRank, CrossSize: c.Told.CrossSize, Host: c.Told.Hostname}
}

// launchersPlace is the place that another launcher's variables tell, as far as they do.
func launchersPlace(c *config.Config) roster.Place {
	p := c.Told.Place
	host := p.Host
	if host == "" || c.IsSet("HOROVOD_HOSTNAME") {
		host = hostname(c)
	}
	return roster.Place{Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, LocalSize: p.LocalSize,
		CrossRank: p.CrossRank, CrossSize: p.CrossSize, Host: host}
}

// hostname is the name that HOROVOD_HOSTNAME gives this host, else its own.
func hostname(c *config.Config) string {
	if !c.IsSet("HOROVOD_HOSTNAME") {
		if name, err := os.Hostname(); err == nil {
			return name
		}
	}
	return c.Told.Hostname
}
