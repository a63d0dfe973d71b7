package meet

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Fixed is a store for ranks that all know the secret and rank 0's addresses: rank 0 need not pass anything on.
type Fixed struct {
	Addrs []string
	// Listen are the addresses on which rank 0 may listen. It takes the first free one.
	Listen []string
	// Elsewhere says that another process may serve at Addrs.
	Elsewhere bool
}

var _ Store = (*Fixed)(nil)

// conventional returns a few ports of rank 0's host that follow from the secret and the job's name. Others cannot guess
// them. If one is taken, the next may be free.
func conventional(key []byte, host, job string) *Fixed {
	const ports, first, count = 4, 10000, 20000 // below the ports that systems choose themselves
	m := hmac.New(sha256.New, key)
	m.Write([]byte("gorovod ports " + job))
	sum := m.Sum(nil)
	f := &Fixed{}
	for i := range ports {
		port := first + int(binary.BigEndian.Uint32(sum[4*i:])%count)
		f.Addrs = append(f.Addrs, net.JoinHostPort(host, strconv.Itoa(port)))
		f.Listen = append(f.Listen, net.JoinHostPort("", strconv.Itoa(port))) // on that host its name may mean loopback
	}
	return f
}

// Publish does nothing.
func (f *Fixed) Publish(context.Context, Offer) (withdraw func(), err error) { return func() {}, nil }

// retryPause is the pause before a rank tries again whether rank 0 listens.
const retryPause = 200 * time.Millisecond

// Read returns the addresses.
func (f *Fixed) Read(ctx context.Context, stale *Offer) (Offer, error) {
	if stale != nil && !sleep(ctx, retryPause) {
		return Offer{}, fmt.Errorf("no rendezvous answers at %v: %w", f.Addrs, ctx.Err())
	}
	return Offer{Addrs: f.Addrs}, nil
}

func (f *Fixed) String() string { return fmt.Sprintf("the secret that was given, and %v", f.Addrs) }

// sleep sleeps for d, or returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
