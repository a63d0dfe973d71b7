package meeting

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestWhereTheRendezvousIs(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	m := &Point{Addrs: []netip.AddrPort{at("10.0.0.1:5"), at("192.168.1.1:5"), at("[fd00::1]:5")}}
	for seen, want := range map[string]string{
		"":                   "10.0.0.1:5,192.168.1.1:5,[fd00::1]:5",
		"nonsense":           "10.0.0.1:5,192.168.1.1:5,[fd00::1]:5",
		"203.0.113.9":        "10.0.0.1:5,192.168.1.1:5,[fd00::1]:5", // a router's, or a jump host's
		"fd00::1":            "[fd00::1]:5,10.0.0.1:5,192.168.1.1:5",
		"::ffff:192.168.1.1": "192.168.1.1:5,10.0.0.1:5,[fd00::1]:5",
	} {
		env := Variables(m.SeenFrom(seen))
		if got := env[CandidatesVariable]; got != want {
			t.Errorf("%s: %s, want %s", seen, got, want)
		}
		if first, _, _ := strings.Cut(want, ","); at(first).Addr().String() != env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] {
			t.Errorf("%s: %v", seen, env)
		}
	}
	if _, err := Anywhere([]string{"none0"}); err == nil || !strings.Contains(err.Error(),
		"--network-interfaces none0: none of these is an interface of this host") {
		t.Errorf("%v", err)
	}
	for hosts, want := range map[string]string{"a b": "c", "a,b c": "", "": "a b c"} {
		var found [][]string
		for _, its := range strings.Fields(hosts) {
			found = append(found, strings.Split(its, ","))
		}
		if got := strings.Join(Missing([]string{"a", "b", "c"}, found), " "); got != want {
			t.Errorf("hosts with %s: nobody has %s, want %s", hosts, got, want)
		}
	}
	one, err := Anywhere([]string{"none0", "lo"}) // another host may name its interface so
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for _, l := range one.Listeners {
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("it listens at %v", l.Addr())
		}
	}
}

func TestHostsWithLoopbackOnly(t *testing.T) {
	hosts := []string{"a", "b", "c"}
	if cut := Secluded(hosts, [][]string{{"eth0"}, {"lo"}, {"lo", "ib0"}}); !slices.Equal(cut, []string{"b"}) {
		t.Errorf("%v", cut)
	}
}
