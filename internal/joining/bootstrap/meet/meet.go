// Package meet brings ranks of other launchers to one rendezvous and one secret. Rank 0 serves the rendezvous, makes
// the secret, and passes both on by a Store, which only this user's processes of this job can read. Choose picks the
// Store according to the ranks' launcher, the same one on all ranks.
//
// A secret never follows from values that others may know, such as the number of a job. If there is no safe way to
// pass a secret on, Choose refuses, with advice.
package meet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gorovod/gorovod/internal/base/environment"
)

// Offer is what rank 0 tells the others.
type Offer struct {
	// Addrs are the addresses (host:port) at which the rendezvous may be, the likeliest first.
	Addrs []string `json:"addrs,omitempty"`
	// Key is the job's secret. Empty if all ranks have it already.
	Key []byte `json:"key,omitempty"`
	// Trouble says why there is no rendezvous; then nothing else is set.
	Trouble string `json:"trouble,omitempty"`
}

// String omits the secret.
func (o Offer) String() string { return fmt.Sprintf("offer of %v", o.Addrs) }

// GoString omits the secret, too.
func (o Offer) GoString() string { return o.String() }

// Store is where rank 0 leaves its offer for the other ranks.
type Store interface {
	// Publish is called by rank 0, once. withdraw takes the offer back after all have read it, or when nobody will.
	Publish(ctx context.Context, o Offer) (withdraw func(), err error)
	// Read is called by the other ranks, and blocks until there is an offer or ctx ends. stale, which may be nil, is an
	// offer at which nobody answered: Read waits for another one, or returns it again after a pause if somebody may
	// still answer there.
	Read(ctx context.Context, stale *Offer) (Offer, error)
	// String describes the store for messages.
	String() string
}

// Sweeper is a Store that keeps the offer when rank 0's process is killed before it can withdraw it.
type Sweeper interface {
	// Sweep removes offers of dead processes. A rank that gives up calls it; rank 0 of any later job removes them,
	// too.
	Sweep()
}

// Circumstances are the input of Choose.
type Circumstances struct {
	Place environment.Place
	// Host is the name of this process's host in messages.
	Host string
	// Key is the secret that the user has given to all ranks; empty if there is none.
	Key []byte
	// Addrs are the user's addresses of the rendezvous; they need the Key.
	Addrs []string
	// Dir is a directory that all ranks share, named by the user; empty if none is.
	Dir string
	// Home is the user's home directory, which hosts often share; empty if unknown.
	Home string
	// Local is a directory on this host for this user's files, created if it is missing.
	Local string
	// MPI says that this process has initialised MPI. Its library itself uses the connection with the process manager.
	MPI bool
	// PMIx opens the key-value space of the launcher's PMIx for the job, or says why it cannot. It is called if there
	// is no better store; nil: never.
	PMIx func() (KeyValues, error)
}

// Choose returns the store for these ranks, or an error with advice.
func Choose(c Circumstances) (Store, error) {
	p := c.Place
	switch {
	case len(c.Addrs) > 0 && len(c.Key) > 0:
		return &Fixed{Addrs: c.Addrs, Listen: c.Addrs, Elsewhere: true}, nil
	case len(c.Addrs) > 0:
		return nil, errors.New("HOROVOD_GLOO_RENDEZVOUS_ADDR is set without HOROVOD_SECRET_KEY, the secret by which " +
			"the ranks know one another: give the same 64 random hexadecimal digits to all of them")
	case c.Dir != "" && p.Job != "":
		store, err := newFile(c.Dir, p.Job)
		if err != nil {
			return nil, fmt.Errorf("GOROVOD_RENDEZVOUS_DIR=%s must be a directory that all hosts share: %w", c.Dir, err)
		}
		return store, nil
	case p.OneHost() && p.Job != "":
		return newLocalFile(c.Local, p.Job)
	case p.PMI != "" && !c.MPI:
		return newPMI(p, c.Host)
	case p.PMIx != "" && c.PMIx != nil:
		space, err := c.PMIx()
		if err == nil {
			return &pmix{space, c.Host}, nil
		}
		c.PMIx = nil
		store, other := Choose(c)
		if other != nil {
			return nil, fmt.Errorf("%w (PMIx is of no use here: %w)", other, err)
		}
		return store, nil
	case len(c.Key) > 0 && p.Head != "" && p.Job != "":
		return conventional(c.Key, p.Head, p.Job), nil
	case p.Job != "" && c.Home != "":
		return newPrivateFile(filepath.Join(c.Home, ".gorovod"), p.Job)
	}
	return nil, fmt.Errorf("%s has started %d ranks, but offers no way to hand a secret from rank 0 to the others%s. "+
		"One of these helps: GOROVOD_RENDEZVOUS_DIR, a directory that all hosts share; HOROVOD_SECRET_KEY, the same "+
		"64 random hexadecimal digits for all ranks, with HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, an address of rank "+
		"0's host and a free port there; or horovodrun", p.Launcher, p.Size, strings.Join(c.obstacles(), ""))
}

// missingNames are the variables without which a launcher's job has no name of its own, or no way to pass values on.
var missingNames = map[environment.Launcher]string{
	environment.OpenMPI: "PMIX_NAMESPACE",
	environment.Jsrun:   "both LSB_JOBID and PMIX_NAMESPACE",
	environment.Hydra:   "PMI_FD",
}

// obstacles says why the existing ways cannot be used.
func (c Circumstances) obstacles() (why []string) {
	if c.Place.PMI != "" && c.MPI {
		why = append(why, " (its PMI is in use by the library of MPI in this process)")
	}
	if c.Dir != "" && c.Place.Job == "" {
		why = append(why, " (in GOROVOD_RENDEZVOUS_DIR nothing would tell this job's file from others': "+string(
			c.Place.Launcher)+" gives the job no name)")
	}
	if missing := missingNames[c.Place.Launcher]; missing != "" && c.Place.Job == "" && c.Place.PMI == "" {
		why = append(why, " ("+string(c.Place.Launcher)+" would do by itself, but has not set "+missing+")")
	}
	return why
}
