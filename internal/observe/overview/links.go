package overview

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Link is what went over one kind of link in collectives of one class of sizes, in the last seconds.
type Link struct {
	Link  string  `json:"link"`  // "shm", "tcp", "mpi" or "nccl"
	NIC   string  `json:"nic"`   // the network interface; "" where it is unknown
	Class string  `json:"class"` // the largest size
	Sent  float64 `json:"sent"`  // bytes a second, of all ranks together
	// Rate is how many bytes a second a rank sends while such a collective is under way, on average.
	Rate float64 `json:"rate"`
	// Host is the host that is nearest to its limit, or has the highest rate where no limit is known. HostRate is the
	// sum of its ranks' rates. Limit is how many bytes a second the host can send; 0: unknown.
	Host     string  `json:"host"`
	HostRate float64 `json:"hostrate"`
	Limit    float64 `json:"limit"`
}

// leastLimited is the least class of sizes for which the rate of copying memory is a limit: up to 1 MiB, data stays in
// the caches.
const leastLimited = feed.Class(3)

// SetCopying says how many bytes of memory a second the launcher's host can copy, and which names of hosts are its own.
func (j *Job) SetCopying(rate float64, here func(host string) bool) {
	j.mu.Lock()
	j.copying, j.here = rate, here
	j.mu.Unlock()
}

// linkKey tells Links apart.
type linkKey struct {
	way   feed.Way
	nic   string
	class feed.Class
}

// hostLink is what the ranks of one host have sent.
type hostLink struct{ rate, limit float64 }

// links adds up what the ranks have sent in the last samples, the most first. The caller holds mu.
func (j *Job) links() []Link {
	type sum struct {
		sent, rate float64
		ranks      int
		hosts      map[string]*hostLink
	}
	all := map[linkKey]*sum{}
	for i := range j.ranks {
		r := &j.ranks[i]
		if len(r.samples) < 2 {
			continue
		}
		a, b := &r.samples[0], &r.samples[len(r.samples)-1]
		dt := b.told.Sub(a.told).Seconds()
		if a.told.IsZero() || dt <= 0 {
			continue
		}
		for _, now := range b.traffic {
			before := trafficOf(a.traffic, now.Way, now.Class)
			sent, time := more(before.Bytes, now.Bytes), more(before.Time, now.Time)
			if sent == 0 || time == 0 {
				continue
			}
			key := linkKey{now.Way, r.last.NICOf(now.Way), now.Class}
			x := all[key]
			if x == nil {
				x = &sum{hosts: map[string]*hostLink{}}
				all[key] = x
			}
			rate := float64(sent) / feed.Seconds(time)
			x.sent += float64(sent) / dt
			x.rate += rate
			x.ranks++
			h := x.hosts[r.host]
			if h == nil {
				h = &hostLink{limit: j.limit(r, key)}
				x.hosts[r.host] = h
			}
			h.rate += rate
		}
	}
	links := []Link{}
	for key, x := range all {
		l := Link{Link: key.way.String(), NIC: key.nic, Class: key.class.String(), Sent: x.sent,
			Rate: x.rate / float64(x.ranks)}
		for host, h := range x.hosts {
			if l.Host == "" || h.nearer(l.HostRate, l.Limit) || h.rate == l.HostRate && host < l.Host {
				l.Host, l.HostRate, l.Limit = host, h.rate, h.limit
			}
		}
		links = append(links, l)
	}
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(b.Sent, a.Sent), cmp.Compare(a.Link, b.Link), cmp.Compare(a.NIC, b.NIC),
			cmp.Compare(a.Class, b.Class))
	})
	return links
}

// nearer reports whether the host is nearer to its limit than another one. A host whose limit is known comes before
// others.
func (h *hostLink) nearer(rate, limit float64) bool {
	switch {
	case (h.limit > 0) != (limit > 0):
		return h.limit > 0
	case limit > 0:
		return h.rate/h.limit > rate/limit
	}
	return h.rate > rate
}

// limit is how many bytes a second the rank's host can send over a link; 0: unknown.
func (j *Job) limit(r *rank, key linkKey) float64 {
	switch {
	case key.way == feed.ByTCP:
		return float64(r.last.NIC.Rate) / 8
	case key.way == feed.ByMemory && key.class >= leastLimited && j.here != nil && j.here(r.host):
		return j.copying
	}
	return 0
}

func trafficOf(all []feed.Traffic, way feed.Way, class feed.Class) feed.Traffic {
	for _, t := range all {
		if t.Way == way && t.Class == class {
			return t
		}
	}
	return feed.Traffic{}
}
