package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// machine tells where a process runs, as far as that can be found out: ranks of
// one network find one another on loopback, and those with the same process ids
// can watch one another.
type machine struct {
	Network   string `json:"network"`
	Processes string `json:"processes"`
}

// thisMachine puts the kernel's boot before the names of its namespaces, which are
// numbers that two hosts may share. What is not known is empty.
func thisMachine() machine {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	processes, _ := os.Readlink("/proc/self/ns/pid")
	prefix := strings.TrimSpace(string(boot)) + " "
	return machine{prefix + network, prefix + processes}
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

// maxAddresses bounds what a rank says of itself; a host may have an address for
// each of its containers.
const maxAddresses = 16

// listen opens a listener for the other ranks, and says at which addresses, best
// first, they find it. Who knocks must prove the job's secret before anything else.
func (w *World) listen() (net.Listener, []string, error) {
	if w.Config.Interface == "" && w.oneNetwork() {
		if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
			return l, []string{l.Addr().String()}, nil
		} // in a fresh network namespace even loopback may be down
	}
	own, err := w.addresses()
	if err != nil {
		return nil, nil, err
	}
	at := ":0"
	if len(own) == 1 {
		at = netip.AddrPortFrom(own[0], 0).String()
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	var addrs []string
	for _, a := range own {
		addrs = append(addrs, netip.AddrPortFrom(a, port).String())
	}
	return l, addrs, nil
}

// addresses are those at which other hosts may reach this one: first the one from
// which the launcher is reached, then IPv4. With HOROVOD_GLOO_IFACE it is the
// first of that interface.
func (w *World) addresses() ([]netip.Addr, error) {
	if name := w.Config.Interface; name != "" {
		return ofInterface(name)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var own []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			own = append(own, usable(i)...)
		}
	}
	if len(own) == 0 {
		return nil, errors.New("this host has no address at which ranks on other hosts could reach it")
	}
	first := w.towardsLauncher()
	slices.SortStableFunc(own, func(a, b netip.Addr) int { return preference(a, first) - preference(b, first) })
	return own[:min(len(own), maxAddresses)], nil
}

func preference(a, first netip.Addr) int {
	switch {
	case a == first:
		return 0
	case a.Is4():
		return 1
	}
	return 2
}

func ofInterface(name string) ([]netip.Addr, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		var names []string
		all, _ := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
		}
		return nil, fmt.Errorf("HOROVOD_GLOO_IFACE=%s: %w; this host has %s", name, err, strings.Join(names, ", "))
	}
	own := usable(*i)
	if len(own) == 0 {
		return nil, fmt.Errorf("HOROVOD_GLOO_IFACE=%s: the interface has no address", name)
	}
	slices.SortStableFunc(own, func(a, b netip.Addr) int { return preference(a, own[0]) - preference(b, own[0]) })
	return own[:1], nil
}

// usable are an interface's addresses that mean the same to other processes:
// link-local ones do not.
func usable(i net.Interface) (usable []netip.Addr) {
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() {
				usable = append(usable, ip.Unmap())
			}
		}
	}
	return usable
}

// towardsLauncher is this host's address on the way to the launcher.
func (w *World) towardsLauncher() netip.Addr {
	c, err := net.Dial("udp", w.Config.RendezvousAddr) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// exchangeAddresses tells all ranks at which addresses this one can be reached for
// a purpose, and returns theirs.
func (w *World) exchangeAddresses(ctx context.Context, purpose string, own []string) (of func(rank int) []string, err error) {
	mine, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	values, err := w.session.Exchange(ctx, purpose, mine)
	if err != nil {
		return nil, err
	}
	addrs := make([][]string, len(values))
	for r, v := range values {
		if err := json.Unmarshal(v, &addrs[r]); err != nil {
			return nil, fmt.Errorf("the addresses of rank %d: %w", r, err)
		}
	}
	return func(rank int) []string { return addrs[rank] }, nil
}
