// Package driver runs an elastic job from the launcher: it carries out the decisions of package membership. Each worker
// keeps a connection, on which it asks for a place and hears about changes. Each epoch has a rendezvous of its own,
// with its own key and numbers, so no layer below knows of elastic jobs. The driver reports a death to the epoch's
// rendezvous, and then every rank aborts with that cause.
//
// The caller starts and signals processes, and reports what happens to them (Started, Ended, Gone).
package driver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
)

const (
	// lossTime is how long the driver waits, after it lost a worker's connection, for the report of the process's end.
	lossTime = 2 * time.Second
	// leaveTime is how long a dismissed worker may take to end by itself.
	leaveTime = 10 * time.Second
)

// Options describe a job.
type Options struct {
	membership.Config
	// Key is the job's secret.
	Key []byte
	// Certificates are for workers, and their ranks, that begin TLS. If they are files, all must.
	Certificates auth.Certificates
	// Discover, if set, returns the hosts. The driver calls it every DiscoverEvery, on a goroutine of its own. If it is
	// nil, the job has the hosts of Hosts.
	Discover      func(ctx context.Context) ([]membership.Host, error)
	DiscoverEvery time.Duration
	// FirstDiscovery is how long the first discovery may take. After SlowDiscovery the driver tells the user that
	// discovery is under way.
	FirstDiscovery Limit
	SlowDiscovery  time.Duration
	Hosts          []membership.Host
	// Start begins to start a worker. Signal sends a signal to a worker's process group, and SIGKILL also to all its
	// descendants. Both run on the driver's goroutine, and must not block.
	Start  func(membership.Start)
	Signal func(worker int, sig syscall.Signal)
	// Meet opens an epoch's rendezvous, and returns its addresses for each host.
	Meet func() ([]net.Listener, func(host string) []string, error)
	// Serves, if set, gets each epoch's rendezvous before it serves, the number of its ranks, and why the epoch is
	// formed. words are those of the last epoch's ranks for what has failed; empty if nothing has.
	Serves func(s *rendezvous.Server, size int, cause membership.Cause, words string)
	// Failed, if set, gets each message about a failed worker, as the user does.
	Failed func(text string)
	// Say prints a message for the user. Debug prints one for a user who asked for details.
	Say, Debug func(format string, args ...any)
	// Grace is how long processes may take to end after SIGTERM.
	Grace time.Duration
}

// Limit bounds a wait.
type Limit struct {
	Limit  time.Duration
	Option string // the launcher's option that sets the limit
}

// Outcome is how a job ended.
type Outcome struct {
	// Reason says why the job was stopped; empty if it has finished.
	Reason string
	// Failure is the failure that counts: the first one in the last epoch, or the first of all if the last epoch had
	// none. Nil if no worker failed.
	Failure *Failure
	// Earlier says that workers failed in earlier epochs, which the job survived.
	Earlier bool
	// Ranks are the ranks of the last epoch's workers, by worker; empty if no epoch was formed.
	Ranks map[int]int
	// Interrupted is the first signal to the launcher, SIGPIPE for HangUp; 0 if none came. Hurried: a second one came.
	Interrupted syscall.Signal
	Hurried     bool
}

// Failure is the end of a worker's process.
type Failure = ending.Failure

// Driver is a job. Its methods are safe on any goroutine.
type Driver struct {
	o      Options
	began  time.Time
	events chan func()
	done   chan struct{} // closed when Run returns
	// abandoned: the program that starts processes is gone. The many decisions of a large job end early.
	abandoned atomic.Bool

	// The fields below belong to Run's goroutine.
	state    *membership.State
	workers  map[int]*worker
	epoch    *epoch
	ranks    map[int]int // of the epoch's workers
	stamp    int64
	stopping bool
	reason   string
	ends     *ending.State
	vacating map[string]func()
}

// worker is the driver's state of one worker.
type worker struct {
	id      int
	host    string
	pid     int
	conn    *conn  // nil if it has no connection now
	number  uint64 // of its registration
	epoch   uint64 // the last in which it had a place
	rank    int
	ended   bool // its process has ended
	leaving bool // it was told to end
}

// New makes a driver; Run runs it.
func New(o Options) *Driver {
	return &Driver{o: o, events: make(chan func(), 256), done: make(chan struct{}), workers: map[int]*worker{},
		vacating: map[string]func(){}, ends: ending.New(ending.Terms{Asked: o.Grace / 2, Terminated: o.Grace,
			Killed: killTime, Survives: true})}
}

// Run runs the job to its end. It returns when no process of it is left, except those that cannot be killed. Call it
// once.
func (d *Driver) Run(ctx context.Context) (Outcome, error) {
	defer close(d.done)
	defer func() {
		if d.epoch != nil {
			d.epoch.close()
		}
	}()
	d.began = time.Now()
	d.state = membership.New(d.o.Config)
	hosts := d.o.Hosts
	if d.o.Discover != nil {
		var err error
		if hosts, err = d.firstHosts(ctx); err != nil {
			return Outcome{}, fmt.Errorf("discover hosts: %w", err)
		}
		if d.over() {
			return d.outcome(), nil
		}
		ctx, cancel := context.WithCancel(ctx)
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			d.discover(ctx, hosts)
		}()
		defer func() { cancel(); <-watching }()
	}
	d.do(d.state.Hosts(0, hosts))
	for !d.over() {
		var tick, stage <-chan time.Time
		if at, ok := d.state.Next(); ok && !d.stopping {
			tick = time.After(at - d.now())
		}
		if at, ok := d.ends.Next(); ok {
			stage = time.After(time.Until(at))
		}
		select {
		case f := <-d.events:
			f()
		case <-tick:
			d.do(d.state.Tick(d.now()))
		case <-stage:
			d.finish(d.ends.Tick(time.Now()))
		}
	}
	return d.outcome(), nil
}

// post lets Run's goroutine run f.
func (d *Driver) post(f func()) {
	select {
	case d.events <- f:
	case <-d.done:
	}
}

func (d *Driver) now() time.Duration { return time.Since(d.began) }

// over reports whether the job is over: it is stopping, and all workers are gone or given up.
func (d *Driver) over() bool {
	return d.stopping && (len(d.workers) == 0 || d.ends.Stage() == ending.LeftBehind)
}

// Started reports that a worker's process runs.
func (d *Driver) Started(id, pid int) {
	d.post(func() {
		if w := d.workers[id]; w != nil {
			w.pid = pid
		}
	})
}

// Ended reports how a worker's process has ended, or that it could not start. Report Gone afterwards.
func (d *Driver) Ended(id int, death rendezvous.Death) { d.post(func() { d.ended(id, death) }) }

// Gone reports that no process of a worker is left, so that its slot is free.
func (d *Driver) Gone(id int) {
	d.post(func() {
		w := d.workers[id]
		delete(d.workers, id)
		if w != nil && w.conn != nil {
			w.conn.close()
		}
		d.vacate()
	})
}

// Vacated calls f, on a goroutine of its own, once a host has no workers left. Offer the hosts without this host
// before.
func (d *Driver) Vacated(host string, f func()) {
	d.post(func() {
		d.vacating[host] = f
		d.vacate()
	})
}

// vacate calls the functions of hosts without workers.
func (d *Driver) vacate() {
	if len(d.vacating) == 0 {
		return // the usual case, in which each worker's end must not look at all others
	}
	occupied := map[string]bool{}
	for _, w := range d.workers {
		occupied[w.host] = true
	}
	for host, f := range d.vacating {
		if !occupied[host] {
			delete(d.vacating, host)
			go f()
		}
	}
}

// HostLost reports that a host cannot be reached any more. Report its workers' ends afterwards, each with the reason.
func (d *Driver) HostLost(host string) { d.post(func() { d.do(d.state.HostLost(d.now(), host)) }) }

// Offer reports which hosts exist now, if Options.Discover is nil. Known hosts keep their order.
func (d *Driver) Offer(hosts []membership.Host) {
	d.post(func() {
		hosts = keepOrder(d.o.Hosts, hosts)
		if !slices.Equal(d.o.Hosts, hosts) {
			d.o.Hosts = hosts
			d.do(d.state.Hosts(d.now(), hosts))
		}
	})
}

// Abandon ends Run at once, because the program that starts and ends processes is gone. The workers see their
// connections end.
func (d *Driver) Abandon() {
	d.abandoned.Store(true)
	d.post(func() {
		d.stopping = true
		clear(d.workers)
	})
}

// Interrupt passes a signal on to all workers and ends the job. A second one kills them.
func (d *Driver) Interrupt(sig syscall.Signal, reason string) {
	d.breakOff(reason, func() []ending.Action { return d.ends.Interrupt(time.Now(), sig) })
}

// HangUp ends the job, because nobody reads its output any more.
func (d *Driver) HangUp(reason string) {
	d.breakOff(reason, func() []ending.Action { return d.ends.HangUp(time.Now()) })
}

func (d *Driver) breakOff(reason string, event func() []ending.Action) {
	d.post(func() {
		if !d.stopping {
			d.halt(reason)
		}
		d.finish(event())
	})
}

func (d *Driver) ended(id int, death rendezvous.Death) {
	w := d.workers[id]
	if w == nil || w.ended {
		return
	}
	w.ended = true
	death.Rank = id
	if w.epoch > 0 {
		death.Rank = w.rank
	}
	if d.epoch != nil && w.epoch == d.epoch.number {
		death = d.epoch.server.Died(death)
	}
	// The epoch's rendezvous cannot tell: a worker that is alone needs no rendezvous, and a member of an earlier epoch
	// has been initialized. A worker has a place only because its hvd.init() asked for one.
	death.NeverJoined = w.epoch == 0 && d.epoch != nil
	f := Failure{Worker: id, Epoch: w.epoch, Death: death}
	switch {
	case !death.Failed():
		d.o.Debug("worker %d has ended", id)
	case w.leaving || d.stopping:
		d.o.Debug("%v", f)
	default:
		d.finish(d.ends.Failed(time.Now(), f))
		d.o.Say("%v", f)
		if d.o.Failed != nil {
			d.o.Failed(fmt.Sprint(f))
		}
	}
	d.do(d.state.Ended(d.now(), id, death.Failed()))
}

// do carries out the decisions of the state.
func (d *Driver) do(actions []membership.Action) {
	for _, a := range actions {
		if d.stopping || d.abandoned.Load() {
			return
		}
		if _, loud := a.(membership.Tell); !loud {
			d.o.Debug("%v", a)
		}
		switch a := a.(type) {
		case membership.Start:
			d.workers[a.Worker] = &worker{id: a.Worker, host: a.Host}
			d.o.Start(a)
		case membership.End:
			d.o.Say("worker %d is ended: %s", a.Worker, a.Reason)
			d.end(a.Worker)
		case membership.Dismiss:
			d.dismiss(a.Worker, a.Reason)
		case membership.Form:
			if err := d.form(a); err != nil {
				d.stop(fmt.Sprintf("epoch %d cannot be formed: %v", a.Epoch, err))
			}
		case membership.Notify:
			d.stamp = max(d.stamp+1, time.Now().Unix())
			for _, id := range a.Workers {
				d.tell(id, elastic.Message{Type: elastic.TypeUpdate, Stamp: d.stamp, Update: a.Update})
			}
		case membership.Ping:
			d.tell(a.Worker, elastic.Message{Type: elastic.TypePing})
		case membership.Tell:
			d.o.Say("%s", a.Text)
		case membership.Stop:
			reason := a.Reason
			if a.Unfinished {
				reason += d.operations()
			}
			d.stop(reason)
		}
	}
}

// end ends a worker's process with SIGTERM, and with SIGKILL if that takes longer than Grace.
func (d *Driver) end(id int) {
	w := d.workers[id]
	if w == nil || w.ended {
		return
	}
	w.leaving = true
	d.o.Signal(id, syscall.SIGTERM)
	time.AfterFunc(d.o.Grace, func() {
		d.post(func() {
			if d.workers[id] == w {
				d.o.Signal(id, syscall.SIGKILL)
			}
		})
	})
}

// dismiss tells a worker to end by itself, and ends its process if it does not.
func (d *Driver) dismiss(id int, reason string) {
	d.tell(id, elastic.Message{Type: elastic.TypeDismiss, Text: reason})
	w := d.workers[id]
	if w == nil || w.leaving {
		return
	}
	w.leaving = true
	time.AfterFunc(leaveTime, func() {
		d.post(func() {
			if d.workers[id] == w {
				d.end(id)
			}
		})
	})
}

// halt begins the end of the job.
func (d *Driver) halt(reason string) {
	d.stopping, d.reason = true, reason
	if reason != "" {
		for id := range d.workers {
			d.tell(id, elastic.Message{Type: elastic.TypeDismiss, Text: reason})
		}
	}
}

// killTime is how long processes may take to end after SIGKILL.
const killTime = 12 * time.Second

// stop ends the job, though no signal has come.
func (d *Driver) stop(reason string) {
	d.halt(reason)
	d.finish(d.ends.Stop(time.Now()))
}

// finish carries out the decisions about the job's end.
func (d *Driver) finish(actions []ending.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case ending.Pass:
			for id := range d.workers {
				d.o.Signal(id, a.Signal)
			}
		case ending.LeaveBehind:
			for id, w := range d.workers {
				d.o.Say("worker %d %s cannot be killed; it is left behind", id,
					rendezvous.Death{Host: w.host, PID: w.pid}.Where())
			}
		}
	}
}

// outcome is the job's Outcome.
func (d *Driver) outcome() Outcome {
	o := Outcome{Reason: d.reason, Ranks: d.ranks, Interrupted: d.ends.Interrupted(), Hurried: d.ends.Hurried()}
	all := d.ends.Failures()
	last := slices.DeleteFunc(slices.Clone(all),
		func(f Failure) bool { return f.Epoch == 0 || f.Epoch != d.state.Epoch() })
	var first *rendezvous.Failure
	if d.epoch != nil {
		first = d.epoch.server.First()
	}
	if i := ending.Root(last, first, time.Time{}); i >= 0 {
		o.Failure, o.Earlier = &last[i], all[0].Epoch != last[i].Epoch
	} else if d.reason != "" && len(all) > 0 {
		o.Failure = &all[0]
	}
	return o
}
