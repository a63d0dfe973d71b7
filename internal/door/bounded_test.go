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

func TestQuota(t *testing.T) {
	var q quota
	now, taken := time.Unix(1e9, 0), 0
	for range 1000 {
		if q.take(now) {
			taken++
		}
	}
	if taken < burst || taken > burst+2 {
		t.Errorf("%d requests at a time", taken)
	}
	taken = 0
	for i := range 1000 {
		if q.take(now.Add(time.Duration(i) * requestCost / 2)) {
			taken++
		}
	}
	if taken < 490 || taken > 510 {
		t.Errorf("%d requests in the time for 500", taken)
	}
}

func TestNewcomersTakeThePlaceOfTheIdle(t *testing.T) {
	b, began := newBounded(nil, 2), time.Now()
	reader := func() *boundedConn {
		c, other := net.Pipe()
		t.Cleanup(func() { other.Close() })
		return &boundedConn{c, b}
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
