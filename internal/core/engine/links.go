package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// links are the connections between the world's hosts, as they were measured when the ranks met. They are the same on
// all ranks, so every lane can derive the same settings from them. The zero value knows none.
type links struct {
	hosts []collective.Link
	of    []int // by world rank: its host
	took  time.Duration
}

// linksNap bounds the sleeps of measureLinks, so that it looks for an abort, and at the heartbeat.
const linksNap = 100 * time.Millisecond

// measureLinks measures the links between the hosts of the world's lane, together with all other ranks, and tunes the
// lane's algorithms for them. It blocks until all ranks have taken part, or until the network is aborted, by this rank
// after twice Options.StartTimeout: then the engine's first operation has the cause. New calls it before the lane has
// any operation, so no two ranks ever begin an operation with different settings.
func (e *Engine) measureLinks(l *lane) {
	run, own := l.run.(*collective.Lane)
	if !own || !e.opts.MeasureLinks || run.Hosts() < 2 {
		return
	}
	begun := thisMoment()
	found := make([]collective.Link, run.Hosts())
	op, awaited := run.MeasureLinks(found)
	if !e.driveAlone(op, func() (time.Duration, error) { return e.notMeasured(awaited()) }) {
		return
	}
	took := thisMoment().since(begun)
	e.links = links{hosts: found, of: hostsOf(l.part.Hosts, len(l.members)), took: took}
	l.counted[0] = run.Sent() // the figures are about operations
	l.tuneOver(e.links.among(l.members))
	slowest := e.links.among(l.members)
	e.opts.Log.Debug("measured the links between hosts", "hosts", len(found), "latency", slowest.Latency, "bytes/s",
		slowest.Rate, "took", took)
}

// driveAlone drives an operation of a lane that has no other, and reports whether it ended well. Once it has waited for
// as long as late says, it aborts the network with late's cause.
func (e *Engine) driveAlone(op collective.Op, late func() (after time.Duration, cause error)) bool {
	begun := thisMoment()
	asked := begun
	for {
		ticket := e.bell.Arm()
		if e.poller != nil {
			e.poller.Poll()
		}
		done, err := op.Advance()
		if err != nil {
			e.net.Abort(err)
		}
		if done || e.net.Err() != nil {
			e.bell.Disarm()
			return done && err == nil
		}
		failpoint.Here("measure")
		e.bell.Sleep(ticket, linksNap)
		now := thisMoment()
		if now.since(asked) < inspectEvery {
			continue
		}
		asked = now
		if n, ok := e.net.(transport.Verified); ok {
			e.verify(n)
		}
		if e.opts.Stalled != nil {
			e.opts.Stalled(now.since(begun))
		}
		if after, cause := late(); e.opts.StartTimeout > 0 && now.since(begun) > after {
			e.net.Abort(cause)
		}
	}
}

// notMeasured is the cause of an abort because the ranks have not measured, of which this one waits for those that are
// awaited, and the time after which it is due. That is later than a connection's time-out, which knows better why a
// rank cannot be reached, and latest on ranks that ask nobody themselves.
func (e *Engine) notMeasured(awaited []int) (after time.Duration, cause error) {
	after, waits := 2*e.opts.StartTimeout, ""
	for _, r := range awaited {
		waits += ", " + e.opts.Describe(r)
	}
	if waits == "" {
		after, waits = 3*e.opts.StartTimeout, ", the other ranks"
	}
	return after, fmt.Errorf("the links between hosts were not measured within %v: %s waits for%s "+
		"(GOROVOD_MEASURE_LINKS=0 measures nothing)", after, e.opts.Describe(e.opts.Rank), waits[1:])
}

// hostsOf is the host of each member of a lane. Nil hosts: each member has its own.
func hostsOf(hosts [][]int, members int) []int {
	of := make([]int, members)
	for m := range of {
		of[m] = m
	}
	for h, list := range hosts {
		for _, m := range list {
			of[m] = h
		}
	}
	return of
}

// among is the slowest link between the hosts of some ranks, unknown if they share a host.
func (k *links) among(ranks []int) collective.Link {
	if k.hosts == nil {
		return collective.Link{}
	}
	var hosts []int
	for _, r := range ranks {
		hosts = append(hosts, k.of[r])
	}
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) < 2 {
		return collective.Link{}
	}
	return collective.Slowest(k.hosts, hosts)
}

// tuneOver tunes a lane that has had no operation yet for its links.
func (l *lane) tuneOver(k collective.Link) {
	if k.Rate > 0 {
		l.settings.data = l.settings.data.Over(k)
		l.run.Tune(l.settings.data)
	}
}

// figures are what the world's links are like.
func (k *links) figures() (f feed.Hosts) {
	if k.hosts == nil {
		return f
	}
	all := make([]int, len(k.hosts))
	for h := range all {
		all[h] = h
	}
	slowest := collective.Slowest(k.hosts, all)
	return feed.Hosts{Latency: uint64(slowest.Latency), Rate: uint64(slowest.Rate), Took: uint64(k.took)}
}
