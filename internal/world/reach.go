package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/reach"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// machine tells where a process runs, as far as that can be found out: ranks of
// one network find one another on loopback, and those with the same process ids
// can watch one another.
type machine struct {
	Network, Processes string
}

// thisMachine is made of the kernel's boot and the names of its namespaces, which are
// numbers that two hosts may share. What is not known counts as empty.
func thisMachine() machine {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	processes, _ := os.Readlink("/proc/self/ns/pid")
	short := func(namespace string) string { // every rank reads that of every other one
		sum := sha256.Sum256(append(boot, namespace...))
		return hex.EncodeToString(sum[:8])
	}
	return machine{short(network), short(processes)}
}

// oneNetwork reports that all ranks are on one host's network.
func (w *World) oneNetwork() bool {
	for _, m := range w.members {
		if m.Machine.Network != w.members[0].Machine.Network {
			return false
		}
	}
	return true
}

// listen opens a listener for the other ranks, and says at which addresses they find
// it. Who knocks must prove the job's secret before anything else. It listens on
// loopback alone where all ranks are on one host, on the addresses of those
// interfaces that the user has named, else on all.
func (w *World) listen() (net.Listener, []reach.Offer, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if len(w.Config.Interfaces) == 0 && w.oneNetwork() {
		if l, err := link.Listen(loopback); err == nil {
			return l, offers(l, []reach.Own{{Prefix: netip.PrefixFrom(loopback, 8)}}), nil
		} // in a fresh network namespace even loopback may be down
	}
	own, err := w.addresses()
	if err != nil {
		return nil, nil, err
	}
	var l net.Listener
	if len(w.Config.Interfaces) > 0 || len(own) == 1 {
		var at []netip.Addr
		for _, a := range own {
			at = append(at, a.Prefix.Addr())
		}
		l, err = link.Listen(at...)
	} else {
		l, err = link.ListenEverywhere()
		own = append(own, reach.Own{Prefix: netip.PrefixFrom(loopback, 8)})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	return l, offers(l, own), nil
}

// offers are l's addresses: all of its parts have one port.
func offers(l net.Listener, own []reach.Own) []reach.Offer {
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	all := make([]reach.Offer, len(own))
	for i, a := range own {
		all[i] = reach.Offer{Addr: netip.AddrPortFrom(a.Prefix.Addr(), port).String(), Bridge: a.Bridge}
	}
	return all
}

// addresses are those at which other hosts may reach this one: first the one from
// which the launcher is reached.
func (w *World) addresses() ([]reach.Own, error) {
	var own []reach.Own
	var err error
	if names := w.Config.Interfaces; len(names) > 0 {
		if own, err = reach.OnInterfaces(names); err != nil {
			return nil, fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w", strings.Join(names, ","), err)
		}
	} else if own, err = reach.OnHost(); err != nil {
		return nil, err
	}
	var first netip.Addr
	if w.session != nil {
		first = reach.Toward(w.session.Addr())
	}
	return reach.Best(own, first)
}

// ways are how this rank reaches the others for one purpose. What a rank has offered is
// read, and put into its order, when it is first asked for: most never are.
type ways struct {
	world  *World
	offers [][]byte // by rank
	own    []reach.Own

	mu      sync.Mutex
	ordered map[int][]reach.Way
}

// exchangeAddresses tells all ranks at which addresses this one can be reached for
// a purpose, and returns theirs.
func (w *World) exchangeAddresses(ctx context.Context, purpose string, own []reach.Offer) (*ways, error) {
	mine, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	values, err := w.session.Exchange(ctx, purpose, mine)
	if err != nil {
		return nil, err
	}
	return w.toward(values), nil
}

// toward are the ways to ranks with these offers.
func (w *World) toward(offers [][]byte) *ways {
	here, err := reach.OnHost()
	if err != nil {
		w.log.Debug("addresses are tried in the order in which they are offered", "reason", err)
	}
	return &ways{world: w, offers: offers, own: here, ordered: make(map[int][]reach.Way)}
}

// to are the ways to a rank, the best first.
func (v *ways) to(rank int) []reach.Way {
	v.mu.Lock()
	defer v.mu.Unlock()
	ordered, ok := v.ordered[rank]
	if !ok {
		w := v.world
		near := w.members[rank].Machine.Network == w.members[w.Config.Rank].Machine.Network
		var offers []reach.Offer
		if err := json.Unmarshal(v.offers[rank], &offers); err != nil {
			w.log.Warn("what a rank says of its addresses makes no sense", "rank", rank, "error", err)
		}
		ordered = reach.Order(offers, v.own, near)
		v.ordered[rank] = ordered
	}
	return ordered
}

func (v *ways) addrs(rank int) []string { return reach.Addrs(v.to(rank)) }

// paths is over how many of the first addresses the connections to a rank may be
// spread.
func (v *ways) paths(rank int) int { return reach.Equal(v.to(rank)) }

// reached tells which way to a rank was taken.
func (v *ways) reached(rank, route int) {
	ways := v.to(rank)
	v.world.log.Debug("connected to "+v.world.Describe(rank), "address", ways[route].Addr, "because", ways[route].Why, "of", len(ways))
}
