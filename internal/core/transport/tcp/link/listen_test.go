package link

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// Listeners on several addresses act as one listener with one port.
func TestListenOnSeveralAddresses(t *testing.T) {
	at := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"),
		netip.MustParseAddr("127.0.0.3")}
	l, err := Listen(at...)
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, a := range at {
		c, err := net.Dial("tcp", netip.AddrPortFrom(a, port).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if in.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() != a {
			t.Errorf("accepted at %v, dialled %v", in.LocalAddr(), a)
		}
	}
	if c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.4"), port).String()); err == nil {
		c.Close()
		t.Error("heard where it does not listen")
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if c, err := net.Dial("tcp", netip.AddrPortFrom(at[1], port).String()); err == nil {
		c.Close()
		t.Error("heard after Close")
	}
}

func TestListenNowhere(t *testing.T) {
	if _, err := Listen(); err == nil {
		t.Error("no address")
	}
	if _, err := Listen(netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("an address that is not this host's")
	}
}
