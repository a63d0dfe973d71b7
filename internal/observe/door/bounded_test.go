package door

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestNewcomersTakeThePlaceOfTheIdle(t *testing.T) {
	b, began := newBounded(nil, 2), time.Now()
	reader := func() *boundedConn {
		c, other := net.Pipe()
		t.Cleanup(func() { other.Close() })
		return &boundedConn{Conn: c, in: b}
	}
	expect := func(c, out *boundedConn, ok bool) {
		t.Helper()
		if gone, admitted := b.admit(c); gone != out || admitted != ok {
			t.Errorf("%p goes for %p, admitted: %t", gone, c, admitted)
		}
	}
	first, second, third, fourth := reader(), reader(), reader(), reader()
	expect(first, nil, true)
	expect(second, nil, true)
	first.idle(began.Add(2))
	second.idle(began.Add(1))
	expect(third, second, true)
	second.Close()
	first.idle(time.Time{})
	third.idle(time.Time{})
	expect(fourth, nil, false)
	first.idle(time.Now())
	expect(fourth, first, true)
	fourth.Close()
	expect(reader(), nil, true)
	if len(b.open) != 2 {
		t.Errorf("%d are open", len(b.open))
	}
}

// TestACrowdDisplacesItself lets a crowd from one address come after two idle connections from others.
func TestACrowdDisplacesItself(t *testing.T) {
	b, began := newBounded(nil, 4), time.Now().Add(-time.Hour)
	admit := func(from string) (c, out *boundedConn) {
		c = &boundedConn{in: b, from: sourceOf(from)}
		out, _ = b.admit(c)
		return c, out
	}
	for i, from := range []string{"192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1", "192.0.2.2:2"} {
		c, _ := admit(from)
		c.idle(began.Add(time.Duration(i)))
	}
	for range 10 {
		if _, out := admit("192.0.2.2:3"); out == nil || out.from != sourceOf("192.0.2.2:1") {
			t.Fatalf("%v goes for the crowd", out)
		}
	}
	if _, out := admit("192.0.2.3:1"); out.from != sourceOf("192.0.2.2:1") {
		t.Errorf("%v goes for a newcomer from elsewhere", out.from)
	}
}

func TestHeaderIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(http.NotFoundHandler())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	for size, want := range map[int]string{maxHeader - 100: " 404 ", maxHeader + 100: " 431 "} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		start := "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "
		fmt.Fprint(c, start+strings.Repeat("x", size-len(start)-4)+"\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, want) {
			t.Errorf("a header of %d bytes: %q, %v", size, line, err)
		}
		c.Close()
	}
	s.Close()
	<-done
}
