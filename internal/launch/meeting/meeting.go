// Package meeting chooses where the launcher listens for its ranks: on loopback for a job of this host, and otherwise
// on the addresses at which other hosts may reach it.
//
// A job makes one Point, serves its rendezvous at the Point's Listeners, and hands each rank the Variables of the
// addresses that suit the rank's host. This package must not know what is said there.
package meeting

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/reach"
)

// CandidatesVariable lists all addresses at which ranks may find the rendezvous,
// the likeliest first: HOST:PORT, comma-separated.
const CandidatesVariable = "GOROVOD_RENDEZVOUS_ADDRS"

// Point is where the rendezvous listens.
type Point struct {
	Listeners []net.Listener
	Addrs     []netip.AddrPort // the likeliest first
	loopback  netip.AddrPort   // for ranks of this host; invalid if the user chose interfaces
	Local     bool             // it is on loopback only
}

// Here listens on loopback only, for a job of this host.
func Here() (*Point, error) {
	home, err := loopback()
	if err != nil {
		return nil, fmt.Errorf("listen for the processes: %w", err)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(home, 0).String())
	if err != nil {
		return nil, fmt.Errorf("listen for the processes: %w", err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	return &Point{Listeners: []net.Listener{l}, Addrs: []netip.AddrPort{addr}, loopback: addr, Local: true}, nil
}

// loopback is the address at which processes of this host find one another: 127.0.0.1, or ::1 on a host without IPv4.
func loopback() (netip.Addr, error) {
	var first error
	for _, name := range []string{"127.0.0.1", "::1"} {
		addr := netip.MustParseAddr(name)
		err := visit(addr)
		if err == nil {
			return addr, nil
		}
		if first == nil {
			first = err
		}
	}
	return netip.Addr{}, fmt.Errorf("neither 127.0.0.1 nor ::1 can be reached on this host (%w): is its loopback "+
		"interface up? `ip link set lo up` brings it up", first)
}

// visit reports whether a connection to an address of this host works.
func visit(addr netip.Addr) error {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// Anywhere listens on all addresses of this host, or on those of the named
// interfaces only.
func Anywhere(interfaces []string) (*Point, error) {
	own, err := Outward(interfaces)
	if err != nil {
		return nil, err
	}
	m := &Point{}
	if len(interfaces) > 0 {
		for _, a := range own {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
			if err != nil {
				m.Close()
				return nil, fmt.Errorf("listen for the processes: %w", err)
			}
			m.Listeners = append(m.Listeners, l)
			m.Addrs = append(m.Addrs, l.Addr().(*net.TCPAddr).AddrPort())
		}
		return m, nil
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for the processes: %w", err)
	}
	m.Listeners = []net.Listener{l}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, a := range own {
		m.Addrs = append(m.Addrs, netip.AddrPortFrom(a, port))
	}
	if home, err := loopback(); err == nil { // otherwise ranks of this host use its other addresses
		m.loopback = netip.AddrPortFrom(home, port)
	}
	return m, nil
}

func (m *Point) Close() {
	for _, l := range m.Listeners {
		l.Close()
	}
}

// SeenFrom lists the addresses for a host that sees the launcher at address, the likeliest to work first. An address
// that is empty, or not this host's, means that nobody knows how that host sees the launcher.
func (m *Point) SeenFrom(address string) []netip.AddrPort {
	seen, err := netip.ParseAddr(address)
	if err != nil {
		return m.Addrs
	}
	seen = seen.Unmap().WithZone("")
	i := slices.IndexFunc(m.Addrs, func(a netip.AddrPort) bool { return a.Addr() == seen })
	if i < 0 {
		return m.Addrs
	}
	list := []netip.AddrPort{m.Addrs[i]}
	return append(append(list, m.Addrs[:i]...), m.Addrs[i+1:]...)
}

// ForThisHost lists the addresses for this host.
func (m *Point) ForThisHost() []netip.AddrPort {
	if m.loopback.IsValid() {
		return []netip.AddrPort{m.loopback}
	}
	return m.Addrs
}

// Variables returns the variables of the rendezvous. A program that knows only one address gets the first.
func Variables(addrs []netip.AddrPort) map[string]string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return map[string]string{
		"HOROVOD_GLOO_RENDEZVOUS_ADDR": addrs[0].Addr().String(),
		"HOROVOD_GLOO_RENDEZVOUS_PORT": strconv.Itoa(int(addrs[0].Port())),
		CandidatesVariable:             strings.Join(all, ","),
	}
}

// Outward is ownAddresses, of which there must be one.
func Outward(interfaces []string) ([]netip.Addr, error) {
	own, err := ownAddresses(interfaces)
	if err == nil && len(own) == 0 {
		err = errors.New("listen for the processes: this host has no address but loopback")
	}
	return own, err
}

// ownAddresses lists this host's addresses, or those of some interfaces: IPv4 first, bridges last. It leaves out
// loopback, unless it is named, and addresses that are valid on one link only.
func ownAddresses(interfaces []string) ([]netip.Addr, error) {
	own, err := reach.OnHost()
	if len(interfaces) > 0 {
		own, err = Usable(interfaces)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the processes: %w", err)
	}
	var out []netip.Addr
	for _, o := range reach.Sorted(own, netip.Addr{}) {
		out = append(out, o.Prefix.Addr())
	}
	return out, nil
}

// Usable returns the addresses of the job's interfaces that this host has.
func Usable(interfaces []string) ([]reach.Own, error) {
	own, err := reach.OnInterfaces(interfaces)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", InterfacesOption, strings.Join(interfaces, ","), err)
	}
	return own, nil
}

// Missing are the job's interfaces that no host has. found lists each host's interfaces.
func Missing(interfaces []string, found [][]string) (names []string) {
	for _, name := range interfaces {
		if !slices.ContainsFunc(found, func(its []string) bool { return slices.Contains(its, name) }) {
			names = append(names, name)
		}
	}
	return names
}

// Secluded are the hosts that have none of the job's interfaces except loopback.
func Secluded(hosts []string, found [][]string) (cut []string) {
	for i, its := range found {
		if !slices.ContainsFunc(its, func(name string) bool { return name != "lo" }) {
			cut = append(cut, hosts[i])
		}
	}
	return cut
}

// InterfacesOption restricts a job to interfaces. Hosts may name theirs differently, so each host must have one of
// them.
const InterfacesOption = "--network-interfaces"
