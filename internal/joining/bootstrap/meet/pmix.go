package meet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// KeyValues is a space of keys and values that the ranks of one job share: PMIx's. No other user can read it.
type KeyValues interface {
	// Put gives the other ranks a value of this rank, which they can read after the next Fence.
	Put(ctx context.Context, key string, value []byte) error
	// Fence waits until all ranks have called it.
	Fence(ctx context.Context) error
	// Get returns the value that a rank has put before the last Fence.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// CallRoll returns the beginning of the value that each rank has put under a key so far, by rank; nil if it has put
	// none. It needs no Fence, may follow one whose context has ended, and takes some seconds at most.
	CallRoll(key string) ([][]byte, error)
	// Hosts returns the ranks' hosts as the launcher names them, by rank; empty where unknown. Hosts, too, may follow
	// such a Fence.
	Hosts() []string
	// Done says that all values have been exchanged.
	Done()
}

// pmix is a store in a space of keys and values. All ranks use it together and once, as they use pmi: there is a fence
// between writing and reading. (A rank could also ask rank 0 directly. But some servers answer the first question with
// "not found", or not at all. So pmix asks directly only for an error's text, if the fence has not ended in time.)
//
// Before the fence each rank puts its sign (see gate).
type pmix struct {
	space KeyValues
	host  string // the name of this process's host in messages
}

const (
	pmixKey  = "gorovod-rendezvous"
	pmixSign = "gorovod-here"
)

var pmixGate = gate{"PMIx", "fence", ", and has each host libpmix? GOROVOD_RENDEZVOUS_DIR, a directory that all " +
	"hosts share, makes do without PMIx"}

func (p *pmix) String() string { return "PMIx" }

// Publish takes part in the fence. The other ranks do so in Read.
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

// Read takes part in the fence, and reads. No error shows the value, because it may be the secret.
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

// fence waits until all ranks have come. If ctx ends first, the error lists the missing ranks.
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
