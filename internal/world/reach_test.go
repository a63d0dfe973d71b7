package world

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/config"
)

// listening is where a rank listens, its members being on those machines.
func listening(t *testing.T, iface string, machines ...machine) ([]string, error) {
	t.Helper()
	w := &World{Config: &config.Config{Interface: iface, RendezvousAddr: "127.0.0.1:1"}}
	for _, m := range machines {
		w.members = append(w.members, member{Machine: m})
	}
	l, addrs, err := w.listen()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for _, a := range addrs {
		c, err := net.Dial("tcp", a)
		if err != nil {
			t.Errorf("offered, but not heard: %v", err)
			continue
		}
		c.Close()
	}
	return addrs, nil
}

func TestWhereRanksListen(t *testing.T) {
	here, there := machine{Network: "a"}, machine{Network: "b"}
	for _, c := range []struct {
		iface    string
		machines []machine
	}{{"", []machine{here, here}}, {"lo", []machine{here, there}}} {
		addrs, err := listening(t, c.iface, c.machines...)
		if err != nil || len(addrs) != 1 || !strings.HasPrefix(addrs[0], "127.0.0.1:") {
			t.Errorf("%+v: %v, %v", c, addrs, err)
		}
	}
	if _, err := listening(t, "gorovod9", here, there); err == nil || !strings.Contains(err.Error(), "HOROVOD_GLOO_IFACE=gorovod9") || !strings.Contains(err.Error(), "lo") {
		t.Errorf("an interface that is not there: %v", err)
	}
	switch addrs, err := listening(t, "", here, there); {
	case err != nil && !strings.Contains(err.Error(), "no address at which ranks on other hosts"):
		t.Error(err)
	case err == nil:
		for _, a := range addrs {
			if netip.MustParseAddrPort(a).Addr().IsLoopback() {
				t.Errorf("%s is offered to other hosts", a)
			}
		}
	}
}

// Ranks are on one host only if name, network and processes are the same.
func TestSupposedHosts(t *testing.T) {
	w := &World{}
	for _, m := range []string{"a 1 1", "b 1 1", "a 1 1", "a 2 1", "a 1 2", "b 1 1"} {
		var x member
		fmt.Sscan(m, &x.Host, &x.Machine.Network, &x.Machine.Processes)
		w.members = append(w.members, x)
	}
	if got, want := w.supposedHosts(), [][]int{{0, 2}, {1, 5}, {3}, {4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
