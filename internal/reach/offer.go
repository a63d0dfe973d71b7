package reach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Offer is an address at which a process can be reached, as it tells the others.
type Offer struct {
	Addr   string `json:"a"` // host:port
	Bridge bool   `json:"b,omitempty"`
}

// Own is an address of this host.
type Own struct {
	Prefix    netip.Prefix // the address with the size of its subnet
	Interface string
	Bridge    bool // of containers or virtual machines on this host
}

// maxOffers bounds what a process says of itself; a host may have an address for each
// of its containers.
const maxOffers = 16

// OnHost lists the addresses of this host's interfaces that are up, loopback and
// link-local ones left out: these mean something else to other processes.
func OnHost() ([]Own, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var own []Own
	for _, i := range interfaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			own = append(own, of(i)...)
		}
	}
	return own, nil
}

// OnInterfaces lists the addresses of the named interfaces. Loopback has one.
func OnInterfaces(names []string) ([]Own, error) {
	var own []Own
	for _, name := range names {
		i, err := net.InterfaceByName(name)
		if err != nil {
			var there []string
			all, _ := net.Interfaces()
			for _, i := range all {
				there = append(there, i.Name)
			}
			return nil, fmt.Errorf("%s: %w; this host has %s", name, err, strings.Join(there, ", "))
		}
		its := of(*i)
		if len(its) == 0 {
			return nil, fmt.Errorf("%s: the interface has no address", name)
		}
		if i.Flags&net.FlagLoopback != 0 {
			sortFamilies(its, netip.Addr{})
			its = its[:1]
		}
		own = append(own, its...)
	}
	return own, nil
}

// Best sorts a host's addresses for its offers, and cuts their number: first the one
// from which first is reached, bridges last, IPv4 before IPv6.
func Best(own []Own, first netip.Addr) ([]Own, error) {
	if len(own) == 0 {
		return nil, errors.New("this host has no address at which ranks on other hosts could reach it")
	}
	own = slices.Clone(own)
	sortFamilies(own, first)
	return own[:min(len(own), maxOffers)], nil
}

func sortFamilies(own []Own, first netip.Addr) {
	worth := func(a Own) int {
		switch ip := a.Prefix.Addr(); {
		case ip == first:
			return 0
		case a.Bridge:
			return 3
		case ip.Is4():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(own, func(a, b Own) int { return worth(a) - worth(b) })
}

func of(i net.Interface) (own []Own) {
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if !ok || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
			continue
		}
		ones, _ := n.Mask.Size()
		ip = ip.Unmap()
		own = append(own, Own{netip.PrefixFrom(ip, ones), i.Name, isBridge(i.Name, ip)})
	}
	return own
}

// docker0 is the address of Docker's default bridge, the same on every host. The
// containers on it have others of its subnet, at which they can well be reached.
var docker0 = netip.AddrFrom4([4]byte{172, 17, 0, 1})

// isBridge tells an interface for containers or virtual machines by its name, or by
// its address.
func isBridge(name string, ip netip.Addr) bool {
	for _, prefix := range []string{"docker", "br-", "virbr", "cni", "lxcbr", "lxdbr", "podman", "flannel", "cali"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return ip == docker0
}

// Toward is this host's address on the way to a host:port; invalid if there is no way.
func Toward(addr string) netip.Addr {
	c, err := net.Dial("udp", addr) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
