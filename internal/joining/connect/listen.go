package connect

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// listen opens a listener for the other ranks, and returns its addresses. A peer must first prove the job's secret. It
// listens on loopback alone if all ranks are on one host; else on the interfaces that the user has named; else on all.
func (c *connector) listen() (net.Listener, []reach.Address, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if len(c.Config.Interfaces) == 0 && c.Members.OneNetwork() {
		if l, err := link.Listen(loopback); err == nil {
			return l, listening(l, []reach.Own{{Prefix: netip.PrefixFrom(loopback, 8)}}), nil
		} // in a fresh network namespace even loopback may be down
	}
	own, err := c.addresses()
	if err != nil {
		return nil, nil, err
	}
	var l net.Listener
	if len(c.Config.Interfaces) > 0 || len(own) == 1 {
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
	return l, listening(l, own), nil
}

// listening returns l's addresses. All its parts have one port.
func listening(l net.Listener, own []reach.Own) []reach.Address {
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	all := make([]reach.Address, len(own))
	for i, a := range own {
		all[i] = reach.Address{Addr: netip.AddrPortFrom(a.Prefix.Addr(), port).String(), Bridge: a.Bridge}
	}
	return all
}

// addresses returns the addresses at which other hosts may reach this one. The first is the one on the way to the
// launcher.
func (c *connector) addresses() ([]reach.Own, error) {
	own, err := c.onInterfaces()
	if err != nil {
		return nil, err
	}
	var first netip.Addr
	if c.Session != nil {
		first = reach.Toward(c.Session.Addr())
	}
	return reach.Best(own, first)
}

func (c *connector) onInterfaces() ([]reach.Own, error) { return onInterfaces(c.Config.Interfaces) }

// onInterfaces returns the addresses of the interfaces that the user has named; without names, of all interfaces.
func onInterfaces(names []string) ([]reach.Own, error) {
	if len(names) == 0 {
		return reach.OnHost()
	}
	own, err := reach.OnInterfaces(names)
	if err != nil {
		err = fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w", strings.Join(names, ","), err)
	}
	return own, err
}
