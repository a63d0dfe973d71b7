package connect

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// heard is the list of addresses that a rank sends to the others if its members are on those machines. It tries each
// address.
func heard(t *testing.T, iface []string, machines ...roster.Machine) ([]reach.Address, error) {
	t.Helper()
	c := &connector{Options: Options{Config: &config.Config{Interfaces: iface}}}
	for _, m := range machines {
		c.Members = append(c.Members, roster.Member{Machine: m})
	}
	l, addresses, err := c.listen()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for _, a := range addresses {
		c, err := net.Dial("tcp", a.Addr)
		if err != nil {
			t.Errorf("told, but not heard: %v", err)
			continue
		}
		c.Close()
	}
	return addresses, nil
}

func TestWhereRanksListen(t *testing.T) {
	here, there := roster.Machine{Network: "a"}, roster.Machine{Network: "b"}
	for _, c := range []struct {
		iface    []string
		machines []roster.Machine
	}{{nil, []roster.Machine{here, here}}, {[]string{"lo"}, []roster.Machine{here, there}}, {[]string{"gorovod9", "lo"},
		[]roster.Machine{here, there}}} {
		addresses, err := heard(t, c.iface, c.machines...)
		if err != nil || len(addresses) != 1 || !strings.HasPrefix(addresses[0].Addr, "127.0.0.1:") {
			t.Errorf("%+v: %v, %v", c, addresses, err)
		}
	}
	if _, err := heard(t, []string{"gorovod8", "gorovod9"}, here, there); err == nil ||
		!strings.Contains(err.Error(), "HOROVOD_GLOO_IFACE=gorovod8,gorovod9: none of these") ||
		!strings.Contains(err.Error(), "it has lo") {
		t.Errorf("an interface that is not there: %v", err)
	}
	switch addresses, err := heard(t, nil, here, there); {
	case err != nil && !strings.Contains(err.Error(), "no address at which ranks on other hosts"):
		t.Error(err)
	case err == nil:
		for i, a := range addresses {
			if loopback := netip.MustParseAddrPort(a.Addr).Addr().IsLoopback(); loopback != (i == len(addresses)-1) {
				t.Errorf("loopback is the last: %v", addresses)
			}
		}
	}
}

// A rank that listens on one interface cannot be reached at another.
func TestInterfacesRestrict(t *testing.T) {
	own, err := reach.OnHost()
	if err != nil || len(own) == 0 {
		t.Skipf("this host has no address but loopback: %v", err)
	}
	l, err := link.Listen(own[0].Prefix.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr)
	// On loopback that port may belong to another program, which then gets this.
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", addr.Port)); err == nil {
		defer c.Close()
	}
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if got, want := first.RemoteAddr().String(), c.LocalAddr().String(); got != want {
		t.Errorf("%s is heard, and should be %s alone", got, want)
	}
}
