package world

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestNICRate(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, mark, speed string
		want              uint64
	}{
		{"eth0", "device", "25000\n", 25e9},
		{"bond0", "bonding", "200000\n", 200e9},
		{"veth0", "", "10000\n", 0}, // what a veth says is made up
		{"ens3", "device", "-1\n", 0},
		{"ens4", "device", "2147483647\n", 0},
		{"ens5", "device", "", 0},
		{"down0", "device", "none", 0},
	} {
		at := filepath.Join(dir, c.name)
		if err := os.MkdirAll(filepath.Join(at, c.mark), 0o777); err != nil {
			t.Fatal(err)
		}
		if c.speed != "none" {
			if err := os.WriteFile(filepath.Join(at, "speed"), []byte(c.speed), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got := nicRate(dir, c.name); got != c.want {
			t.Errorf("%s: %d bits a second, not %d", c.name, got, c.want)
		}
	}
	if got := nicRate(dir, "missing"); got != 0 {
		t.Errorf("a missing one: %d", got)
	}
}

func TestNICName(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	loopback := nicName([]netip.Addr{local, netip.MustParseAddr("127.9.9.9")})
	if nic, err := net.InterfaceByName(loopback); err != nil || nic.Flags&net.FlagLoopback == 0 {
		t.Errorf("127.0.0.1 is at %q", loopback)
	}
	for _, addrs := range [][]netip.Addr{nil, {netip.MustParseAddr("203.0.113.7")}, {local,
		netip.MustParseAddr("203.0.113.7")}} {
		if name := nicName(addrs); name != "" {
			t.Errorf("%v are at %q", addrs, name)
		}
	}
	nics, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, nic := range nics {
		addrs, _ := nic.Addrs()
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
			if ip = ip.Unmap(); !ok || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
				continue
			}
			if name := nicName([]netip.Addr{ip}); name != nic.Name {
				t.Errorf("%v is at %q, not %q", ip, name, nic.Name)
			}
			if name := nicName([]netip.Addr{ip, local}); name != "" {
				t.Errorf("two interfaces are %q", name)
			}
		}
	}
}
