package reach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func own(name string, prefixes ...string) (all []Own) {
	for _, p := range prefixes {
		at := netip.MustParsePrefix(p)
		all = append(all, Own{at, name, isBridge(name, at.Addr()), 0})
	}
	return all
}

func TestOrder(t *testing.T) {
	here := slices.Concat(own("docker0", "172.17.0.1/16"), own("eth0", "10.0.0.1/24", "fd00::1/64"),
		own("ib0", "10.1.0.1/24"))
	for _, c := range []struct {
		name, addresses, want string
		near                  bool
	}{
		{"the same subnet before others, bridges last", "192.168.9.9:1 172.18.0.1:1! 10.0.0.2:1 10.1.0.2:1",
			"10.0.0.2:1 10.1.0.2:1 192.168.9.9:1 172.18.0.1:1", false},
		{"loopback leads nowhere between hosts", "127.0.0.1:1 10.0.0.2:1 [::1]:1", "10.0.0.2:1", false},
		{"and is the best on one", "10.0.0.1:1 127.0.0.1:1", "127.0.0.1:1 10.0.0.1:1", true},
		{"one's own address is nobody else's", "172.17.0.1:1! 10.0.0.2:1", "10.0.0.2:1", false},
		{"IPv6", "[fd00::2]:1 [2001:db8::1]:1", "[fd00::2]:1 [2001:db8::1]:1", false},
		{"a bridge's subnet is no neighbourhood", "172.17.0.9:1 192.168.9.9:1", "172.17.0.9:1 192.168.9.9:1", false},
		{"nonsense", "x 10.0.0.2:1 10.0.0.2", "10.0.0.2:1", false},
		{"nothing", "", "", false},
	} {
		var addresses []Address
		for _, text := range strings.Fields(c.addresses) {
			addr, bridge := strings.CutSuffix(text, "!")
			addresses = append(addresses, Address{addr, bridge})
		}
		if got := strings.Join(Addrs(Order(addresses, here, c.near)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	ways := Order([]Address{{Addr: "10.0.0.2:1"}, {Addr: "10.1.0.2:1"}, {Addr: "8.8.8.8:1"}}, here, false)
	if Equal(ways) != 2 || !strings.Contains(ways[1].Why, "ib0") || Equal(nil) != 0 {
		t.Errorf("%+v", ways)
	}
	// An interface with two address families counts once, wherever the second one is in the list.
	for _, text := range []string{"10.0.0.2:1 10.1.0.2:1 [fd00::2]:1", "10.0.0.2:1 [fd00::2]:1 10.1.0.2:1"} {
		var addresses []Address
		for _, addr := range strings.Fields(text) {
			addresses = append(addresses, Address{Addr: addr})
		}
		ways := Order(addresses, here, false)
		if got := strings.Join(Addrs(ways), " "); got != "10.0.0.2:1 10.1.0.2:1 [fd00::2]:1" || Equal(ways) != 2 {
			t.Errorf("%s: %s, of which %d are equal", text, got, Equal(ways))
		}
	}
}

// A slow interface beside fast ones is tried after them, and gets no share.
func TestRails(t *testing.T) {
	at := func(speed int, all []Own) []Own {
		for i := range all {
			all[i].Speed = speed
		}
		return all
	}
	slow, fast0 := at(1000, own("eno1", "10.9.0.1/24")), at(25000, own("ib0", "10.0.0.1/24", "fd00::1/64"))
	fast1, same := at(25000, own("ib1", "10.1.0.1/24")), at(25000, own("ib2", "10.1.0.9/24"))
	unknown0, unknown1 := own("ens3", "10.3.0.1/24"), own("ens4", "10.4.0.1/24")
	bridge := at(100000, own("docker0", "172.17.0.1/16"))
	for _, c := range []struct {
		own    []Own
		chosen bool
		want   int
	}{
		{nil, false, 1}, {slow, false, 1}, {fast0, false, 1}, {slices.Concat(slow, fast0, fast1), false, 2},
		{slices.Concat(fast1, same), false, 1}, {slices.Concat(bridge, fast0, fast1), false, 2},
		{slices.Concat(unknown0, unknown1), false, 1}, {slices.Concat(unknown0, unknown1), true, 2},
		{slices.Concat(unknown0, slow), false, 1},
	} {
		if got := Rails(c.own, c.chosen); got != c.want {
			t.Errorf("%v, chosen %v: %d, want %d", c.own, c.chosen, got, c.want)
		}
	}
	ways := Order([]Address{{Addr: "10.9.0.2:1"}, {Addr: "10.0.0.2:1"}, {Addr: "10.1.0.2:1"}},
		slices.Concat(slow, fast0, fast1), false)
	if got := strings.Join(Addrs(ways), " "); got != "10.0.0.2:1 10.1.0.2:1 10.9.0.2:1" || Equal(ways) != 2 {
		t.Errorf("%s, of which %d are equal", got, Equal(ways))
	}
}

func TestBest(t *testing.T) {
	all := slices.Concat(own("virbr0", "192.168.122.1/24"), own("eth0", "fd00::1/64", "10.0.0.1/24"),
		own("ib0", "10.1.0.1/24"))
	best, err := Best(all, netip.MustParseAddr("10.1.0.1"))
	var got []string
	for _, o := range best {
		got = append(got, o.Prefix.Addr().String())
	}
	if want := "10.1.0.1 10.0.0.1 fd00::1 192.168.122.1"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	if _, err := Best(nil, netip.Addr{}); err == nil {
		t.Error("a host without addresses")
	}
}

func TestBridges(t *testing.T) {
	for name, want := range map[string]bool{"docker0": true, "br-1a2b": true, "virbr0": true, "cni0": true,
		"eth0": false, "bond0": false, "br0": false} {
		if got := isBridge(name, netip.MustParseAddr("10.0.0.1")); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !isBridge("x", netip.MustParseAddr("172.17.0.1")) || isBridge("eth0", netip.MustParseAddr("172.17.0.2")) {
		t.Error("docker's own address is a bridge's, that of a container on it is not")
	}
}

var errDial = errors.New("nobody there")

// When an address fails, the next one starts at once; a late success is discarded.
func TestRace(t *testing.T) {
	for _, c := range []struct {
		plan string // by address: f fails, s succeeds, h hangs until its context ends, l then still succeeds
		want int
	}{{"s", 0}, {"fs", 1}, {"ffffffffs", 8}, {"hs", 1}, {"lsh", 1}, {"ff", -1}, {"", -1}} {
		var discarded, begun atomic.Int32
		won, number, errs := Race(t.Context(), len(c.plan), func(ctx context.Context, i int) (string, error) {
			begun.Add(1)
			switch c.plan[i] {
			case 's':
				return fmt.Sprint("to ", i), nil
			case 'f':
				return "", errDial
			}
			<-ctx.Done()
			if c.plan[i] == 'l' {
				return "late", nil
			}
			return "", ctx.Err()
		}, func(s string) {
			if s != "late" {
				t.Errorf("%s: discarded %q", c.plan, s)
			}
			discarded.Add(1)
		})
		if number != c.want || number >= 0 && (won != fmt.Sprint("to ", number) || errs != nil) {
			t.Errorf("%s: %q from %d, %v", c.plan, won, number, errs)
		}
		if number < 0 && (len(errs) != len(c.plan) || len(errs) > 0 && !errors.Is(errors.Join(errs...), errDial)) {
			t.Errorf("%s: errors %v", c.plan, errs)
		}
		if int(discarded.Load()) != strings.Count(c.plan[:begun.Load()], "l") {
			t.Errorf("%s: %d discarded", c.plan, discarded.Load())
		}
	}
}

func TestRaceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	discarded := 0
	_, number, errs := Race(ctx, 3, func(ctx context.Context, i int) (int, error) {
		<-ctx.Done()
		return i, nil
	}, func(int) { discarded++ })
	if number >= 0 || discarded != 1 {
		t.Errorf("number %d, %d discarded", number, discarded)
	}
	for i, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("address %d: %v", i, err)
		}
	}
}
