package tcp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

func skipWhereNothingIsLent(t *testing.T, n *Network) {
	if n.edges == nil {
		t.Skip("connections are not lent on this system")
	}
}

// The driver itself puts a message that arrives in two pieces, cut at any byte, together in its buffer.
func TestAMessageCutAnywhere(t *testing.T) {
	networks := world(t, 2, nil)
	skipWhereNothingIsLent(t, networks[0])
	lanes := openAll(t, networks, 0)
	c := dialAs(t, networks[0], 0, 1, data)
	in := &networks[1].lanes[0].dataIn[0].streams[0]
	state := func() (filled int, lent bool) {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.filled, in.lent() != nil
	}
	payload := "the payload of one message"
	for cut := range headerSize + len(payload) + 1 {
		message := rawMessage(messageData, uint32(cut), uint64(len(payload)), payload)
		got := bytes.Repeat([]byte{0xee}, len(payload))
		lanes[1].Comm.Recv(0, got)
		c.Write(message[:cut])
		eventually(t, func() bool {
			filled, _ := state()
			return lanes[1].Comm.Received(0) || filled == cut
		})
		if whole := cut == len(message); lanes[1].Comm.Received(0) != whole {
			t.Fatalf("after %d of %d bytes: received is %v", cut, len(message), !whole)
		}
		if rest := got[max(0, cut-headerSize):]; len(bytes.Trim(rest, "\xee")) > 0 {
			t.Fatalf("after %d bytes there is %q", cut, got)
		}
		c.Write(message[cut:])
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		if string(got) != payload {
			t.Fatalf("cut at %d: %q", cut, got)
		}
	}
	if _, lent := state(); !lent {
		t.Error("the driver has lost the connection")
	}
}

// left returns the rest of the message after any number of written bytes.
func TestTheRestOfAMessage(t *testing.T) {
	s := outStream{part: []byte("payload")}
	header{messageData, 7, uint64(len(s.part))}.put(s.header[:])
	whole := slices.Concat(s.header[:], s.part)
	for s.written = range len(whole) {
		head, body := s.left()
		if got := slices.Concat(head, body); !bytes.Equal(got, whole[s.written:]) {
			t.Errorf("after %d bytes %q is left, want %q", s.written, got, whole[s.written:])
		}
	}
}

// The parts of a message are its bytes in order, as many as both ends expect.
func TestParts(t *testing.T) {
	for _, n := range []int{0, 1, minPart, 2*minPart - 1, 2 * minPart, 5*minPart + 77, 100 * minPart} {
		for streams := 1; streams <= 5; streams++ {
			p := pattern(n, 1)
			k := parts(n, streams)
			if k < 1 || k > streams || k > 1 && n/k < minPart {
				t.Errorf("%d bytes over %d streams: %d parts", n, streams, k)
			}
			var all []byte
			for i := range k {
				all = append(all, part(p, i, k)...)
			}
			if !bytes.Equal(all, p) {
				t.Errorf("%d bytes in %d parts are other bytes", n, k)
			}
		}
	}
}

// The goroutine that takes the connection back completes a message that the driver has begun: at the receiver, when the
// sender leaves after any byte.
func TestTakenBackInTheMiddleOfAMessage(t *testing.T) {
	payload := "the payload of one message"
	for _, cut := range []int{0, 1, headerSize - 1, headerSize, headerSize + 1, headerSize + len(payload) - 1} {
		networks := quiet(t, 2)
		skipWhereNothingIsLent(t, networks[0])
		lanes := openAll(t, networks, 5)
		c := dialAs(t, networks[0], 5, 1, data)
		in := &networks[1].lanes[5].dataIn[0].streams[0]
		got := make([]byte, len(payload))
		lanes[1].Comm.Recv(0, got)
		message := rawMessage(messageData, 0, uint64(len(payload)), payload)
		c.Write(message[:cut])
		eventually(t, func() bool { lanes[1].Comm.Received(0); return in.lent() != nil && in.filled == cut })
		networks[1].mu.Lock()
		for c := range networks[1].conns {
			c.recall()
		}
		networks[1].mu.Unlock()
		eventually(t, func() bool { return in.lent() == nil })
		c.Write(message[cut:])
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		if string(got) != payload {
			t.Errorf("cut at %d: %q", cut, got)
		}
		lanes[1].Comm.Recv(0, got[:3])
		c.Write(rawMessage(messageData, 1, 3, "abc"))
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		if string(got[:3]) != "abc" {
			t.Errorf("cut at %d: the next message is %q", cut, got[:3])
		}
		c.Write(rawMessage(messageLaneClosed, 2, 0, ""))
		networks[0].drop(c)
		noConnections(t, networks[1:])
	}
}

// The socket alone wakes a driver that sleeps, also for data that came before the driver looked.
func TestTheKernelWakesTheDriver(t *testing.T) {
	networks := world(t, 2, nil)
	skipWhereNothingIsLent(t, networks[0])
	lanes := openAll(t, networks, 0)
	for k := range 300 {
		p := make([]byte, 8)
		sent := make(chan struct{})
		send := func() {
			lanes[0].Comm.Send(1, []byte(fmt.Sprintf("%08d", k)))
			close(sent)
		}
		if k%2 == 0 {
			send()
			lanes[1].Comm.Recv(0, p)
		} else {
			lanes[1].Comm.Recv(0, p)
			time.AfterFunc(time.Duration(k)*time.Microsecond, send)
		}
		start := time.Now()
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		if d := time.Since(start); d > patience/2 {
			t.Fatalf("message %d was slept over for %v", k, d)
		}
		if string(p) != fmt.Sprintf("%08d", k) {
			t.Fatalf("message %d is %q", k, p)
		}
		<-sent
		until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
	}
}
