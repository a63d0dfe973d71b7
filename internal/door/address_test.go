package door

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestAddressesOfOneFamily checks that an address of IPv4 takes no connection of IPv6, and what readers are told.
func TestAddressesOfOneFamily(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	probe, err := net.Listen("tcp6", "[::1]:0")
	hasIPv6 := err == nil
	if hasIPv6 {
		probe.Close()
	}
	for address, want := range map[string]struct {
		url      string // without the port
		ipv6     bool
		loopback bool
	}{
		"0":           {"http://127.0.0.1", false, true},
		"127.0.0.1:0": {"http://127.0.0.1", false, true},
		"0.0.0.0:0":   {"http://" + name, false, false},
		":0":          {"http://" + name, true, false},
		"[::]:0":      {"http://" + name, true, false},
		"[::1]:0":     {"http://[::1]", true, true},
	} {
		if strings.HasPrefix(address, "[") && !hasIPv6 {
			continue
		}
		o := Options{Address: address, Token: strings.Repeat("x", leastToken)}
		l, loopback, err := o.Listen(1)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		at := l.Addr().(*net.TCPAddr).AddrPort()
		url := o.URL(l, "/p")
		if url != fmt.Sprintf("%s:%d/p", want.url, at.Port()) {
			t.Errorf("%s is shown as %s", address, url)
		}
		if loopback != want.loopback {
			t.Errorf("%s is said to be on loopback: %v", address, loopback)
		}
		c, err := net.Dial("tcp6", netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()).String())
		if err == nil {
			c.Close()
		}
		if hasIPv6 && (err == nil) != want.ipv6 {
			t.Errorf("%s takes IPv6: %v", address, err == nil)
		}
		l.Close()
	}
}
