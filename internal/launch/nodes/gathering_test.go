package nodes

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Node 0 knows when the other nodes look for it on another host.
func TestAstray(t *testing.T) {
	const other = "192.0.2.7" // no host has an address of this range
	if text := astray(t.Context(), other); !strings.Contains(text, "192.0.2.7 (192.0.2.7), which is no address of") {
		t.Errorf("%s: %q", other, text)
	}
	heads := []string{"127.0.0.1", "::1", "no-such-name.invalid"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own {
		heads = append(heads, netip.MustParsePrefix(o.String()).Addr().String())
	}
	for _, head := range heads {
		if text := astray(t.Context(), head); text != "" {
			t.Errorf("%s: %q", head, text)
		}
	}
}
