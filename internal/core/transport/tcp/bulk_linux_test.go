package tcp

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// lowWater is how much must come before the kernel wakes the reader of a lent connection.
func lowWater(t *testing.T, s *inStream) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := unix.GetsockoptInt(s.conn.Load().fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// While the rest of a message is long, the kernel wakes the driver for a good part of it only, and the bell says so.
// For a short rest, and for the next message, it wakes the driver for each byte. No wake-up is lost on the way.
func TestTheDriverSleepsForMuch(t *testing.T) {
	networks := world(t, 2, nil)
	skipWhereNothingIsLent(t, networks[0])
	lanes := openAll(t, networks, 0)
	c := dialAs(t, networks[0], 0, 1, data)
	in := &networks[1].lanes[0].dataIn[0].streams[0]
	bell := networks[1].Bell().(transport.BulkBell)
	const size = 1 << 20
	message := append(rawMessage(messageData, 0, size, ""), pattern(size, 3)...)
	got := make([]byte, size)
	lanes[1].Comm.Recv(0, got)
	for _, step := range []struct {
		upto  int // bytes that have come
		least int // that must come next
	}{{1, wakeBytes}, {headerSize + 5, wakeBytes}, {len(message) - 2*wakeBytes, wakeBytes},
		{len(message) - wakeBytes, wakeBytes}, {len(message) - muchBytes, muchBytes},
		{len(message) - muchBytes + 1, 1}, {len(message) - 1, 1}} {
		sent := 0
		if in.conn.Load() != nil {
			in.mu.Lock()
			sent = in.filled
			in.mu.Unlock()
		}
		c.Write(message[sent:step.upto])
		eventually(t, func() bool {
			if lanes[1].Comm.Received(0) {
				t.Fatalf("received after %d bytes", step.upto)
			}
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.lent() != nil && in.filled == step.upto
		})
		bell.Bulk()
		lanes[1].Comm.Received(0)
		if bulk, least := bell.Bulk(), lowWater(t, in); bulk != (step.least > 1) || least != step.least {
			t.Errorf("after %d bytes: the driver waits for much: %v, for %d bytes at least, want %d", step.upto, bulk,
				least, step.least)
		}
		if bell.Bulk() {
			t.Error("it waits for much, though it has not looked")
		}
	}
	c.Write(message[len(message)-1:])
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if !bytes.Equal(got, message[headerSize:]) {
		t.Error("other bytes")
	}
	// Sleeping readers get long and short messages by turns.
	for k := range 20 {
		n := []int{3, 300_000, 0, 90_000}[k%4]
		want := pattern(n, byte(k))
		lanes[1].Comm.Recv(0, got[:n])
		time.AfterFunc(time.Duration(k%3)*time.Millisecond, func() {
			c.Write(append(rawMessage(messageData, uint32(1+k), uint64(n), ""), want...))
		})
		start := time.Now()
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		if d := time.Since(start); d > patience/2 || !bytes.Equal(got[:n], want) {
			t.Fatalf("message %d of %d bytes took %v", k, n, d)
		}
	}
}

// A connection that is taken back in the middle of a long message wakes its goroutine for each byte.
func TestTakenBackWhileMuchIsAwaited(t *testing.T) {
	networks := quiet(t, 2)
	skipWhereNothingIsLent(t, networks[0])
	lanes := openAll(t, networks, 5)
	c := dialAs(t, networks[0], 5, 1, data)
	in := &networks[1].lanes[5].dataIn[0].streams[0]
	const size = 1 << 20
	message := append(rawMessage(messageData, 0, size, ""), pattern(size, 3)...)
	got := make([]byte, size)
	lanes[1].Comm.Recv(0, got)
	c.Write(message[:100])
	eventually(t, func() bool { lanes[1].Comm.Received(0); return in.lent() != nil && in.filled == 100 })
	if n := lowWater(t, in); n != wakeBytes {
		t.Errorf("%d bytes are awaited", n)
	}
	networks[1].mu.Lock()
	for c := range networks[1].conns {
		c.recall()
	}
	networks[1].mu.Unlock()
	eventually(t, func() bool { return in.lent() == nil })
	for at := 100; at < len(message); at += 300_000 {
		c.Write(message[at:min(len(message), at+300_000)])
	}
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if !bytes.Equal(got, message[headerSize:]) {
		t.Error("other bytes")
	}
	lanes[1].Comm.Recv(0, got[:3])
	c.Write(rawMessage(messageData, 1, 3, "abc"))
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	c.Write(rawMessage(messageLaneClosed, 2, 0, ""))
	networks[0].drop(c)
	noConnections(t, networks[1:])
}
