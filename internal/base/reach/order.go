package reach

import (
	"fmt"
	"net/netip"
	"slices"
)

// Way is an address of another process, and why it has its place in the order.
type Way struct {
	Addr string // host:port
	Why  string
	// Level is smaller for ways to try sooner; ways of one level are equally good.
	Level Level
	// speed is the speed of this host's interface to it, in Mbit/s; 0: unknown.
	speed int
	// again: a better way uses the same interface by another address family, so both together gain nothing.
	again bool
}

// Level is how good an address looks before it is tried.
type Level int

// The levels, the best first.
const (
	Loopback   Level = iota // the same host
	SameSubnet              // on a network that this host is on, too
	Routed                  // elsewhere
	Bridged                 // on a bridge for containers or virtual machines
)

// Order puts the addresses of another process into the order in which this host tries them. own are this host's
// addresses. sameNetwork: both processes are in one network namespace. Only then does loopback lead to the other
// process. An address that this host has, too, never leads to another host, and is left out.
func Order(addresses []Address, own []Own, sameNetwork bool) []Way {
	var ways []Way
	through := make(map[string]string) // by address: this host's interface to it; empty if unknown
	for _, a := range addresses {
		at, err := netip.ParseAddrPort(a.Addr)
		if err != nil {
			continue // the peer sent nonsense
		}
		w := Way{Addr: a.Addr}
		ip := at.Addr().Unmap()
		mine := slices.IndexFunc(own, func(p Own) bool { return p.Prefix.Addr() == ip })
		neighbour := slices.IndexFunc(own, func(p Own) bool { return p.Prefix.Contains(ip) && !p.Bridge })
		switch {
		case ip.IsLoopback():
			if !sameNetwork {
				continue
			}
			w.Level, w.Why = Loopback, "the same host"
		case mine >= 0 && !sameNetwork:
			continue
		case a.Bridge:
			w.Level, w.Why = Bridged, "a bridge for containers, the last resort"
		case neighbour >= 0:
			through[a.Addr] = own[neighbour].Interface
			w.speed = own[neighbour].Speed
			w.Level, w.Why = SameSubnet, fmt.Sprintf("the subnet of %s", own[neighbour].Interface)
		default:
			w.Level, w.Why = Routed, "another subnet"
		}
		ways = append(ways, w)
	}
	slices.SortStableFunc(ways, func(a, b Way) int {
		if a.Level != b.Level {
			return int(a.Level - b.Level)
		}
		return b.speed - a.speed
	})
	behindSecondFamilies(ways, through)
	return ways
}

// behindSecondFamilies puts, within each level, the ways of an interface's second address family behind all others.
// Otherwise an interface with IPv4 and IPv6 would count twice, and get more of the spread connections than one with
// IPv4 alone.
func behindSecondFamilies(ways []Way, through map[string]string) {
	type link struct {
		level Level
		name  string
	}
	first := make(map[link]bool) // by link: its first way is IPv4
	for i := range ways {
		w := &ways[i]
		is4 := netip.MustParseAddrPort(w.Addr).Addr().Unmap().Is4()
		l := link{w.Level, through[w.Addr]}
		if family, seen := first[l]; seen {
			w.again = family != is4
		} else {
			first[l] = is4
		}
	}
	slices.SortStableFunc(ways, func(a, b Way) int {
		switch {
		case a.Level != b.Level || a.again == b.again:
			return int(a.Level - b.Level)
		case a.again:
			return 1
		}
		return -1
	})
}

// Addrs are the ways' addresses.
func Addrs(ways []Way) []string {
	addrs := make([]string, len(ways))
	for i, w := range ways {
		addrs[i] = w.Addr
	}
	return addrs
}

// Equal is how many of the first ways are equally good and fast, and (as far as that is known) use different
// interfaces. Several connections may be spread over these.
func Equal(ways []Way) int {
	n := 0
	for n < len(ways) && ways[n].Level == ways[0].Level && ways[n].speed == ways[0].speed && !ways[n].again {
		n++
	}
	return n
}
