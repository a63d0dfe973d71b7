package world

import (
	"context"
	"os"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/joining/connect"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// introduction is what this rank tells the others about itself.
func (w *World) introduction(o Options) roster.Member {
	c := w.Config
	var knobs map[string]string // only rank 0's are needed, and there may be thousands of ranks
	if w.Place.Rank == 0 {
		knobs = c.Agreed()
	}
	return roster.Member{Host: w.Place.Host, PID: os.Getpid(), LocalSize: w.Place.LocalSize, Claim: w.start.Claim,
		Machine: roster.ThisMachine(), Knobs: knobs, MPIRank: mpiRank(o.MPI), Rails: connect.Rails(c, w.Place)}
}

// introduce exchanges the introductions of all ranks.
func (w *World) introduce(ctx context.Context, o Options) error {
	me := w.introduction(o)
	introduction := me.Encode()
	failpoint.Scramble("rendezvous", introduction)
	values, err := w.session.Exchange(ctx, "join", introduction)
	if err != nil {
		return err
	}
	members, err := roster.Decode(values)
	if err != nil {
		return err
	}
	w.session.NameServer(members.Describe(0))
	return w.adopt(members)
}

// adopt checks the roster, and adopts this rank's place and rank 0's knobs.
func (w *World) adopt(members roster.Members) error {
	w.members = members
	if err := members.CheckClaims(); err != nil {
		return err
	}
	c := w.Config
	if w.Place.Rank == 0 && !w.start.Assigned {
		w.warnOfSharedPlaces()
	}
	w.Place.Complete(members.Names())
	w.Homogeneous = members.Homogeneous()
	mine := c.Agreed()
	differed, err := c.Adopt(members[0].Knobs)
	if err != nil {
		return err
	}
	for _, name := range differed {
		w.log.Warn("this rank's setting differs from rank 0's, which counts", "name", name, "rank", w.Place.Rank,
			"here", mine[name], "rank 0", members[0].Knobs[name])
	}
	if c.TCPStreams == 0 {
		c.TCPStreams = connect.Streams(members)
		if c.TCPStreams > 1 {
			w.log.Debug("the data to another host is spread over several interfaces", "streams", c.TCPStreams)
		}
	}
	return nil
}

func (w *World) warnOfSharedPlaces() {
	if a, b := w.members.SharedPlace(); b > 0 {
		w.log.Warn("two ranks run side by side with one local rank, by which programs choose GPUs", "ranks",
			[]int{a, b}, "host", w.members[a].Host, "HOROVOD_LOCAL_RANK", w.members[a].Claim.LocalRank)
	}
}
