package meet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// KeyValues is a space of keys and values that the ranks of one job share, and nobody of another user: PMIx's.
type KeyValues interface {
	// Put lets the other ranks have a value of this rank after the next Fence.
	Put(ctx context.Context, key string, value []byte) error
	// Fence waits until all ranks have called it.
	Fence(ctx context.Context) error
	// Get is what a rank has put before the last Fence.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// Done says that all has been exchanged.
	Done()
}

// pmix is a board in a space of keys and values. All ranks use it together and once, as that of PMI: there is a
// fence between writing and reading. (A direct question to rank 0 would do without, but some servers never
// answer one that comes after rank 0 has written.)
type pmix struct {
	space KeyValues
}

const pmixKey = "gorovod-rendezvous"

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
	return func() {}, p.space.Fence(ctx)
}

// Read takes part in the fence, and reads. No error shows what was read: it may be the secret.
func (p *pmix) Read(ctx context.Context, stale *Offer) (o Offer, err error) {
	defer p.space.Done()
	if stale != nil {
		return o, fmt.Errorf("rank 0 does not serve the rendezvous at %v, or does no more", stale.Addrs)
	}
	if err := p.space.Fence(ctx); err != nil {
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
