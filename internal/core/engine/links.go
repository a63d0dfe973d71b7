package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/core/collective"
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
// after Options.StartTimeout: then the engine's first operation has the cause. New calls it before the lane has any
// operation, so no two ranks ever begin an operation with different settings.
func (e *Engine) measureLinks(l *lane) {
	run, own := l.run.(*collective.Lane)
	if !own || !e.opts.MeasureLinks || run.Hosts() < 2 {
		return
	}
	begun := thisMoment()
	found := make([]collective.Link, run.Hosts())
	op, awaited := run.MeasureLinks(found)
	if !e.driveAlone(op, func() error { return e.notMeasured(awaited()) }) {
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

// notMeasured is the cause of an abort because the ranks have not measured in time.
func (e *Engine) notMeasured(awaited []int) error {
	waits := "waits for the other ranks of its host"
	if len(awaited) > 0 {
		names := make([]string, len(awaited))
		for i, r := range awaited {
			names[i] = e.opts.Describe(r)
		}
		waits = "has no answer from " + strings.Join(names, ", ")
	}
	return fmt.Errorf("the links between hosts were not measured within %v: %s %s (GOROVOD_MEASURE_LINKS=0 measures "+
		"nothing)", e.opts.StartTimeout, e.opts.Describe(e.opts.Rank), waits)
}

// driveAlone drives an operation of a lane that has no other, and reports whether it ended well. After StartTimeout it
// aborts the network with what late returns.
func (e *Engine) driveAlone(op collective.Op, late func() error) bool {
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
		e.bell.Sleep(ticket, linksNap)
		now := thisMoment()
		if most := e.opts.StartTimeout; most > 0 && now.since(begun) > most {
			e.net.Abort(late())
		}
		if e.opts.Stalled != nil && now.since(asked) > 5*linksNap {
			asked = now
			e.opts.Stalled(now.since(begun))
		}
	}
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
