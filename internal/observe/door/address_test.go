package door

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth/certtest"
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

// A renewed certificate counts without a restart, and while its files cannot be used, the last one does.
func TestRenewedCertificate(t *testing.T) {
	dir, ca := t.TempDir(), certtest.NewCA(t)
	c := ca.Issue(dir, time.Now().Add(time.Hour))
	r := &renewed{o: Options{Certificate: c.Cert, Key: c.Key}}
	serial := func() string {
		t.Helper()
		r.read = time.Time{}
		pair, err := r.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	first := serial()
	ca.Issue(dir, time.Now().Add(time.Hour))
	second := serial()
	if second == first {
		t.Error("the renewed certificate does not count")
	}
	if err := os.Remove(c.Key); err != nil {
		t.Fatal(err)
	}
	if third := serial(); third != second {
		t.Errorf("certificate %s counts after %s", third, second)
	}
}

// TestCertificatesAreSmallFiles checks that a certificate or key that cannot be one is refused before it is read whole.
func TestCertificatesAreSmallFiles(t *testing.T) {
	folder := t.TempDir()
	empty, long := folder+"/empty", folder+"/long"
	for path, size := range map[string]int64{empty: 0, long: 1<<20 + 1} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ certificate, key, want string }{
		{long, empty, long + " has more than 1048576 bytes"},
		{empty, long, long + " has more than 1048576 bytes"},
		{folder, empty, folder + " is not a regular file"},
	} {
		o := Options{Address: "0", Certificate: c.certificate, Key: c.key}
		if _, _, err := o.Listen(1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
