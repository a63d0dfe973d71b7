package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/driver"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/notice"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// launchFleet is this node's part of an elastic job whose nodes have a launcher each.
func launchFleet(f *flags.Flags, name, path string, input []byte, self nodes.Node, open Opener) (code int,
	why output.Report, err error) {
	var key []byte
	if f.Place.Count > 1 {
		if key, err = nodesKey(os.Getenv); err != nil {
			return ending.UsageCode, why, err
		}
	}
	if f.Place.Rank != 0 {
		code, err = joinFleet(f, name, self, key)
		return code, why, err
	}
	env := f.Environ(os.Environ())
	o := driver.Options{Config: f.FleetRules(env, self.Slots), Grace: f.Grace(), Certificates: f.Certificates,
		Hosts: []membership.Host{{Name: self.Host, Slots: self.Slots}}}
	if o.Config.Max < o.Config.NP {
		return ending.UsageCode, why,
			fmt.Errorf("the job needs %d processes to start, and may have %d (%d nodes of %d, or "+
				"--max-np): raise --nnodes or --max-np", o.Config.NP, o.Config.Max, f.Place.Count, self.Slots)
	}
	if err := spawn.CheckLimits(self.Slots); err != nil {
		return ending.UsageCode, why, err
	}
	var l net.Listener
	if f.Place.Count > 1 {
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", f.Place.Port)); err != nil {
			return 1, why, fmt.Errorf("this is node 0, to which the others come: %w: --master-port says another port",
				err)
		}
	}
	e := newElasticJob(f, name, path, env, input)
	if f.Place.Least > 1 { // one node may do without others
		if _, err := meeting.Outward(e.Interfaces); err != nil {
			return 1, why, err
		}
	}
	e.Apart, e.Settings = true, f.Settings(os.Environ())
	e.isLocal = func(host string) bool { return host == self.Host }
	e.fleet = newFleet(e, *f.Place, self, key, l)
	if f.NumProc == 0 && f.MinNP == nil {
		e.fleet.need = o.Config.NP
	}
	e.Remote.Timeout, e.Remote.Open, e.slots = flags.DefaultStartTimeout, e.fleet.openLine, e.fleet.slots
	if _, where := f.LeaveNotice(); where != "" {
		go func() {
			logging.Warn(name, notice.Await(where, func(text string) {
				logging.Warn(name,
					text)
			})+": node 0 ends, and the job with it")
			syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
	}
	return launchElastic(f, e, o, f.Place.Count > 1, open)
}

// joinFleet lets node 0 use this node until the job is over or this node leaves it. If node 0 is lost, this node waits
// for it to come back. The result is the launcher's exit code.
func joinFleet(f *flags.Flags, name string, self nodes.Node, key []byte) (code int, err error) {
	say := func(text string) { logging.Warn(name, text) }
	_, where := f.LeaveNotice()
	leaving := notice.Watch(where, say)
	limit := defaultNodesTimeout
	if f.StartTimeout != nil {
		limit = f.ConnectTimeout()
	}
	for {
		ends := leaving.Ending()
		ctx, cancel := context.WithTimeoutCause(context.Background(), limit, context.DeadlineExceeded)
		early := spawn.WithoutRanks(say)
		conn, left, err := joinOrLeave(ctx, leaving, ends, func(ctx context.Context) (*auth.Sealed, error) {
			return nodes.Join(ctx, *f.Place, self.Host, self.Slots, key, say)
		})
		cancel()
		early()
		switch {
		case left:
			return ending.SignalCode(ends.Interrupted()), nil
		case err != nil:
			return 1, err
		}
		a, code, err := remote.ServeNode(conn, leaving, ends, say)
		switch {
		case err != nil:
			return 1, err
		case a.Over != nil:
			return *a.Over, nil
		case ends.Interrupted() != 0:
			return ending.SignalCode(ends.Interrupted()), nil
		case a.TurnedAway != "":
			return 1, errors.New(a.TurnedAway)
		case !a.Gone:
			return code, nil
		}
		say("node 0 is gone, and with it the job's driver; this node waits for it to come back")
	}
}

// joinOrLeave joins the job, unless this node has to leave first; then left is true.
func joinOrLeave(ctx context.Context, leaving *notice.Departure, ends *ending.State,
	join func(context.Context) (*auth.Sealed, error)) (conn *auth.Sealed, left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	joined, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case s := <-leaving.Signals:
			ends.Interrupt(time.Now(), s.(syscall.Signal))
			left = true
			cancel()
		case why := <-leaving.Notices:
			ends.Leave(time.Now(), why)
			left = true
			cancel()
		case <-joined:
		}
	}()
	conn, err = join(ctx)
	close(joined)
	<-watched
	if left && err == nil {
		conn.Close()
	}
	return conn, left, err
}
