package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// firstHosts finds the first hosts of the job, within FirstDiscovery. An interruption ends the search and the job, and
// the list is empty.
func (d *Driver) firstHosts(ctx context.Context) ([]membership.Host, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.FirstDiscovery.Limit,
		fmt.Errorf("it has not ended within %v (%s)", d.o.FirstDiscovery.Limit, d.o.FirstDiscovery.Option))
	defer cancel()
	slow := time.After(d.o.SlowDiscovery)
	var hosts []membership.Host
	found := make(chan error, 1)
	go func() {
		var err error
		hosts, err = d.o.Discover(ctx)
		found <- err
	}()
	for {
		select {
		case f := <-d.events:
			if f(); d.over() {
				cancel()
				<-found
				return nil, nil
			}
		case err := <-found:
			return hosts, err
		case <-slow:
			d.o.Say("discover hosts: there is no answer yet; the job waits for it for %v in all (%s)",
				d.o.FirstDiscovery.Limit, d.o.FirstDiscovery.Option)
		}
	}
}

// discover is the goroutine that asks for the hosts every DiscoverEvery. It reports later failures, once for each text,
// tries again, and reports when discovery works again.
func (d *Driver) discover(ctx context.Context, known []membership.Host) {
	every := time.NewTicker(d.o.DiscoverEvery)
	defer every.Stop()
	failed := "" // the last failure's text; empty if the last attempt succeeded
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		hosts, err := d.o.Discover(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if failed != err.Error() {
				d.o.Say("discover hosts: %v; it is tried again", err)
			}
			failed = err.Error()
			continue
		}
		if failed != "" {
			d.o.Say("discover hosts: it works again")
		}
		failed = ""
		// The order of a script's lines means nothing, so known hosts keep their order.
		hosts = keepOrder(known, hosts)
		if !slices.Equal(known, hosts) {
			known = hosts
			d.post(func() { d.do(d.state.Hosts(d.now(), hosts)) })
		}
	}
}

// keepOrder puts the known hosts first, in their order.
func keepOrder(known, hosts []membership.Host) []membership.Host {
	index := make(map[string]int, len(known))
	for i, h := range known {
		index[h.Name] = i
	}
	place := func(h membership.Host) int {
		if i, ok := index[h.Name]; ok {
			return i
		}
		return len(known)
	}
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(a, b membership.Host) int { return place(a) - place(b) })
	return hosts
}
