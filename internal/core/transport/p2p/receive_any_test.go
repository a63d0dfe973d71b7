package p2p

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// RecvAny returns each message once, the messages of one sender in order, and starves no sender.
func TestRecvAny(t *testing.T) {
	const size, each = 3, 40
	endpoints := world(t, size, nil)
	defer closeAll(endpoints)
	ctx := limited(t)
	var senders sync.WaitGroup
	for r := range size {
		senders.Go(func() {
			for i := range each {
				mustSend(t, endpoints[r], 0, 7, []byte{byte(i)})
			}
		})
	}
	next := make([]byte, size)
	p := make([]byte, 8)
	for range size * each {
		from, n, _, err := endpoints[0].RecvAny(ctx, nil, 7, p)
		if err != nil || n != 1 || p[0] != next[from] {
			t.Fatalf("got %d bytes %v from rank %d, %v; want message %d", n, p[:n], from, err, next[from])
		}
		next[from]++
	}
	senders.Wait()
}

// A message that is larger than MaxKept waits for its receiver.
func TestRecvAnyOfALargeMessage(t *testing.T) {
	endpoints := world(t, 2, nil)
	defer closeAll(endpoints)
	ctx := limited(t)
	want := pattern(MaxKept+1, 3)
	go mustSend(t, endpoints[1], 0, 5, want)
	p := make([]byte, len(want))
	from, n, _, err := endpoints[0].RecvAny(ctx, nil, 5, p)
	if err != nil || from != 1 || n != len(want) || !bytes.Equal(p, want) {
		t.Fatalf("%d bytes from rank %d, %v", n, from, err)
	}
}

// A Recv that waits for a sender's next message is served before RecvAny. RecvAny ends with its context, and with the
// Endpoint.
func TestRecvAnyWaits(t *testing.T) {
	endpoints := world(t, 2, nil)
	defer closeAll(endpoints)
	got := make(chan error, 1)
	go func() {
		_, _, err := endpoints[0].Recv(limited(t), 1, 9, make([]byte, 1))
		got <- err
	}()
	eventually(t, func() bool { return endpoints[0].boxes[1].waitingFor(9) })
	mustSend(t, endpoints[1], 0, 9, []byte{1})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, _, _, err := endpoints[0].RecvAny(ctx, nil, 9, make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	cause := errors.New("the cause")
	go func() {
		_, _, _, err := endpoints[0].RecvAny(limited(t), nil, 9, nil)
		got <- err
	}()
	endpoints[0].Abort(cause)
	if err := <-got; !errors.Is(err, cause) {
		t.Error(err)
	}
}
