package door

import (
	"net/netip"
	"sync"
	"time"
)

// limit allows a request for each cost of time on average, and bursts.
type limit struct {
	cost  time.Duration
	burst int
}

var (
	perSource = limit{time.Second / 20, 40}
	// overall bounds what a flood from many sources costs the machine: a request without the token costs some 0.1 ms of
	// a core.
	overall = limit{time.Second / 400, 400}
)

// most is the longest time that spent can be ahead of now.
func (l limit) most() time.Duration { return time.Duration(l.burst+1) * l.cost }

// allows reports whether there may be one more request. spent is when the requests so far will have been earned.
func (l limit) allows(spent, now time.Time) bool { return spent.Add(l.cost).Sub(now) <= l.most() }

// after is spent after one more request.
func (l limit) after(spent, now time.Time) time.Time {
	if spent.Before(now) {
		spent = now
	}
	return spent.Add(l.cost)
}

// quotas limit the requests of each source, and those of all sources together.
type quotas struct {
	mu    sync.Mutex
	spent map[netip.Prefix]time.Time // by source; it holds at most mostSources
	all   time.Time                  // spent of all sources together
}

// mostSources is more than all sources that have requests to earn: their last requests lie within perSource.most, and
// overall allows no more in this time.
var mostSources = overall.burst + 1 + int(perSource.most()/overall.cost)

func newQuotas() *quotas { return &quotas{spent: map[netip.Prefix]time.Time{}} }

// take reports whether a request is within the quotas, and counts it if so.
func (q *quotas) take(from netip.Prefix, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, known := q.spent[from]
	if !perSource.allows(own, now) || !overall.allows(q.all, now) {
		return false
	}
	if !known && len(q.spent) >= mostSources {
		q.forget(now)
	}
	q.spent[from], q.all = perSource.after(own, now), overall.after(q.all, now)
	return true
}

// forget drops the sources that have earned all their requests.
func (q *quotas) forget(now time.Time) {
	for from, spent := range q.spent {
		if !spent.After(now) {
			delete(q.spent, from)
		}
	}
}

// sourceOf is the source of a remote address: one address of IPv4, or a network of IPv6 with 64 bits, because one host
// can use all of its addresses. Addresses of other kinds are one source, the zero Prefix.
func sourceOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	source, _ := ip.Prefix(bits)
	return source
}
