package meet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// KeyValues is a space of keys and values that the ranks of one job share, and nobody of another user: PMIx's.
type KeyValues interface {
	// Put lets the other ranks have a value of this rank after the next Fence.
	Put(ctx context.Context, key string, value []byte) error
	// Fence waits until all ranks have called it.
	Fence(ctx context.Context) error
	// Get is what a rank has put before the last Fence.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// CallRoll is the beginning of what each rank has put under a key by now, by rank, nil for those that have put
	// nothing. It needs no Fence, may follow one whose context has ended, and takes some seconds at most.
	CallRoll(key string) ([][]byte, error)
	// Hosts are the ranks' hosts in the launcher's words, by rank; empty where unknown. It, too, may follow such a
	// Fence.
	Hosts() []string
	// Done says that all has been exchanged.
	Done()
}

// pmix is a store in a space of keys and values. All ranks use it together and once, as that of PMI: there is a
// fence between writing and reading. (A direct question to rank 0 would do without, but some servers have been seen to
// say "not found" to the first who asks, or nothing. So such questions decide nothing: they are asked for an error's
// words only, when the fence has not ended in time.)
//
// Before the fence each rank puts its sign (see gate).
type pmix struct {
	space KeyValues
	host  string // this process's, as messages name it
}

const (
	pmixKey  = "gorovod-rendezvous"
	pmixSign = "gorovod-here"
)

var pmixGate = gate{"PMIx", "fence", ", and has each host libpmix? GOROVOD_RENDEZVOUS_DIR, a directory that all " +
	"hosts share, makes do without PMIx"}

func (p *pmix) String() string { return "PMIx" }

// Publish takes part in the fence, which the others do in Read.
func (p *pmix) Publish(ctx context.Context, o Offer) (withdraw func(), err error) {
	defer p.space.Done()
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if err := p.space.Put(ctx, pmixKey, text); err != nil {
		return nil, err
	}
	return func() {}, p.fence(ctx)
}

// Read takes part in the fence, and reads. No error shows what was read: it may be the secret.
func (p *pmix) Read(ctx context.Context, stale *Offer) (o Offer, err error) {
	defer p.space.Done()
	if stale != nil {
		return o, fmt.Errorf("rank 0 does not serve the rendezvous at %v, or has stopped", stale.Addrs)
	}
	if err := p.fence(ctx); err != nil {
		return o, err
	}
	text, err := p.space.Get(ctx, 0, pmixKey)
	if err != nil {
		return o, fmt.Errorf("what rank 0 has left there: %w", err)
	}
	if json.Unmarshal(text, &o) != nil {
		return Offer{}, errors.New("rank 0 has left something else under this name")
	}
	return o, nil
}

// fence waits until all ranks have come. Where the time is over before that the error says who has not.
func (p *pmix) fence(ctx context.Context) error {
	began := time.Now()
	if err := p.space.Put(ctx, pmixSign, []byte(p.host)); err != nil {
		return err
	}
	err := p.space.Fence(ctx)
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	waited := time.Since(began)
	hosts := p.space.Hosts()
	signs, err := p.space.CallRoll(pmixSign)
	return pmixGate.overdue(ctx, waited, hosts, signs, err)
}
