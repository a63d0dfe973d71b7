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
	// Level is smaller for what is tried sooner; ways of one level are equally good.
	Level Level
}

// Level is how good an address looks before it is tried.
type Level int

// The levels, the best first.
const (
	Loopback   Level = iota // the same host
	SameSubnet              // on a network that this host is on, too
	Routed                  // elsewhere
	Bridged                 // of a bridge for containers or virtual machines
)

// Order puts what another process offers into the order in which it is tried from
// here. own are this host's addresses, and sameNetwork says that both processes are
// in one network namespace. Loopback leads there only then; an address that is this
// host's own, too, leads to another host never, and is left out.
func Order(offers []Offer, own []Own, sameNetwork bool) []Way {
	var ways []Way
	for _, o := range offers {
		at, err := netip.ParseAddrPort(o.Addr)
		if err != nil {
			continue // a peer's nonsense leads nowhere
		}
		w := Way{Addr: o.Addr}
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
		case o.Bridge:
			w.Level, w.Why = Bridged, "a bridge for containers, the last resort"
		case neighbour >= 0:
			w.Level, w.Why = SameSubnet, fmt.Sprintf("the subnet of %s", own[neighbour].Interface)
		default:
			w.Level, w.Why = Routed, "another subnet"
		}
		ways = append(ways, w)
	}
	slices.SortStableFunc(ways, func(a, b Way) int { return int(a.Level - b.Level) })
	return ways
}

// Addrs are the ways' addresses.
func Addrs(ways []Way) []string {
	addrs := make([]string, len(ways))
	for i, w := range ways {
		addrs[i] = w.Addr
	}
	return addrs
}

// Equal is how many of the first ways are equally good: over these, several
// connections may be spread.
func Equal(ways []Way) int {
	n := 0
	for n < len(ways) && ways[n].Level == ways[0].Level {
		n++
	}
	return n
}
