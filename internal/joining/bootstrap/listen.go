package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/meet"
)

// listenFor listens at the addresses at which the other ranks will look: those that they know already; otherwise
// loopback, if all are on this host; otherwise this host's addresses. l is nil if another process serves.
func listenFor(m meeting) (l net.Listener, addrs []string, err error) {
	if f, ok := m.store.(*meet.Fixed); ok {
		l, err := listenAt(f.Listen)
		if err != nil && !f.Elsewhere {
			return nil, nil, err
		}
		return l, f.Addrs, nil
	}
	return listenAcross(m.interfaces, m.oneHost)
}

// listenAcross listens on loopback if all ranks are on this host. Otherwise it listens on the addresses of these
// interfaces, or of all.
func listenAcross(interfaces []string, oneHost bool) (l net.Listener, addrs []string, err error) {
	if oneHost && len(interfaces) == 0 {
		if l, err := link.Listen(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err == nil {
			return l, []string{l.Addr().String()}, nil
		}
	}
	var own []reach.Own
	if len(interfaces) > 0 {
		if own, err = reach.OnInterfaces(interfaces); err != nil {
			err = fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w", strings.Join(interfaces, ","), err)
		}
	} else {
		own, err = reach.OnHost()
	}
	if err == nil {
		own, err = reach.Best(own, netip.Addr{})
	}
	if err != nil {
		return nil, nil, err
	}
	var at []netip.Addr
	for _, a := range own {
		at = append(at, a.Prefix.Addr())
	}
	all, err := link.Listen(at...)
	if err != nil {
		return nil, nil, err
	}
	port := all.Addr().(*net.TCPAddr).Port
	for _, a := range at {
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(port)).String())
	}
	return all, addrs, nil
}

// listenAt listens at the first address that belongs to this host and is free.
func listenAt(addrs []string) (net.Listener, error) {
	var all []error
	for _, a := range addrs {
		l, err := net.Listen("tcp", a)
		if err == nil {
			return l, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}
