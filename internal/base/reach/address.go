package reach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Address is where a process can be reached, in the form that other processes get.
type Address struct {
	Addr   string `json:"a"` // host:port
	Bridge bool   `json:"b,omitempty"`
}

// Own is an address of this host.
type Own struct {
	Prefix    netip.Prefix // the address with the size of its subnet
	Interface string
	Bridge    bool // the interface is for containers or virtual machines on this host
	Speed     int  // of the interface, in Mbit/s; 0: unknown
}

// maxAddresses is how many addresses a process offers; a host may have one for each of its containers.
const maxAddresses = 16

// OnHost lists the addresses of this host's interfaces that are up, without loopback and link-local ones, which mean
// something else to other processes.
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

// OnInterfaces lists the addresses of those of the named interfaces that this host has and that are up; other hosts may
// use other names. Loopback has one address. If there are no addresses, the error says what this host has instead.
func OnInterfaces(names []string) ([]Own, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var own []Own
	for _, name := range names {
		i := slices.IndexFunc(all, func(i net.Interface) bool { return i.Name == name })
		if i < 0 || all[i].Flags&net.FlagUp == 0 {
			continue
		}
		its := of(all[i])
		if len(its) > 0 && all[i].Flags&net.FlagLoopback != 0 {
			sortFamilies(its, netip.Addr{})
			its = its[:1]
		}
		own = append(own, its...)
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("none of these is an interface of this host that is up and has an address: it has %s",
			describe(all))
	}
	return own, nil
}

// describe names interfaces, and says of each useless one why it is useless.
func describe(all []net.Interface) string {
	var there []string
	for _, i := range all {
		switch {
		case i.Flags&net.FlagUp == 0:
			there = append(there, i.Name+" (which is down)")
		case len(of(i)) == 0:
			there = append(there, i.Name+" (without an address)")
		default:
			there = append(there, i.Name)
		}
	}
	if len(there) == 0 {
		return "no interfaces"
	}
	return strings.Join(there, ", ")
}

// Names are the interfaces of these addresses, each once.
func Names(own []Own) (names []string) {
	for _, o := range own {
		if !slices.Contains(names, o.Interface) {
			names = append(names, o.Interface)
		}
	}
	return names
}

// Best returns a host's addresses in the order in which the host offers them, shortened: first the one from which the
// host reaches first, bridges last, IPv4 before IPv6.
func Best(own []Own, first netip.Addr) ([]Own, error) {
	if len(own) == 0 {
		return nil, errors.New("this host has no address at which ranks on other hosts could reach it")
	}
	own = Sorted(own, first)
	return own[:min(len(own), maxAddresses)], nil
}

// Sorted is own in the order of Best, not shortened.
func Sorted(own []Own, first netip.Addr) []Own {
	own = slices.Clone(own)
	sortFamilies(own, first)
	return own
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
	speed := -1
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
		if speed < 0 {
			speed = speedOf(i.Name)
		}
		own = append(own, Own{netip.PrefixFrom(ip, ones), i.Name, isBridge(i.Name, ip), speed})
	}
	return own
}

// docker0 is the address of Docker's default bridge, the same on every host. Containers on the bridge have other
// addresses of its subnet, at which they can be reached.
var docker0 = netip.AddrFrom4([4]byte{172, 17, 0, 1})

// isBridge reports whether an interface is for containers or virtual machines, by its name or address.
func isBridge(name string, ip netip.Addr) bool {
	for _, prefix := range []string{"docker", "br-", "virbr", "cni", "lxcbr", "lxdbr", "podman", "flannel", "cali"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return ip == docker0
}

// Toward is this host's address on the way to addr, which is host:port; invalid if there is no way.
func Toward(addr string) netip.Addr {
	c, err := net.Dial("udp", addr) // UDP: this sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
