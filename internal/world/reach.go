package world

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

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
	own, err := w.onInterfaces()
	if err != nil {
		return nil, err
	}
	var first netip.Addr
	if w.session != nil {
		first = reach.Toward(w.session.Addr())
	}
	return reach.Best(own, first)
}

// onInterfaces are the addresses of those interfaces that the user has named, else of all.
func (w *World) onInterfaces() ([]reach.Own, error) {
	names := w.Config.Interfaces
	if len(names) == 0 {
		return reach.OnHost()
	}
	own, err := reach.OnInterfaces(names)
	if err != nil {
		err = fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w", strings.Join(names, ","), err)
	}
	return own, err
}

// rails is what this rank knows of over how many of its host's interfaces data may be spread:
// nothing where no other host takes part.
func (w *World) rails() int {
	c := w.Config
	if c.TCPStreams != 0 || c.LocalSize == c.Size {
		return 0
	}
	own, err := w.onInterfaces()
	if err != nil {
		return 0 // listen tells of it
	}
	return reach.Rails(own, len(c.Interfaces) > 0)
}

// spread decides how many connections carry the data from a rank to another, if that is
// left to it: enough for the interfaces of the host that has the most. All ranks
// come to the same.
func (w *World) spread() {
	if c := w.Config; c.TCPStreams == 0 {
		c.TCPStreams = 1
		for _, m := range w.members {
			c.TCPStreams = max(c.TCPStreams, min(m.Rails, reach.MaxRails))
		}
		if c.TCPStreams > 1 {
			w.log.Debug("the data to another host is spread over several interfaces", "streams", c.TCPStreams)
		}
	}
}
