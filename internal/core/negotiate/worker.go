package negotiate

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// Worker is one member's part of a lane: the cache of Responses that can be repeated by card. It reflects the lane's
// log up to the last applied record. Members that have read the same records have equal Workers.
//
// A Worker is not safe for concurrent use.
type Worker struct {
	member int
	byName map[string]*Response
	byCard map[uint32]*Response // the same Responses
}

// NewWorker makes the Worker of a lane's member (its index in the lane, not
// its world rank).
func NewWorker(member int) *Worker {
	return &Worker{
		member: member,
		byName: make(map[string]*Response),
		byCard: make(map[uint32]*Response),
	}
}

// Lookup says how to announce r:
//
//	cached      mark card and gen on the board; post r in full only if the board refuses them as stale
//	not cached  post r in full at once
//
// Do not announce a name again before you have read its last Response or card record from the log. Lookup sets
// r.Contested, and does not allocate. If cached, r.Name becomes the cache's copy of the same name.
func (w *Worker) Lookup(r *Request) (card, gen uint32, cached bool) {
	resp := w.byName[r.Name]
	r.Contested = resp != nil && !resp.answers(r, w.member)
	if resp == nil || r.Contested {
		return NoCard, 0, false
	}
	r.Name = resp.Name
	return resp.Card, resp.Gen, true
}

// CardGen names a card under one of its generations.
type CardGen struct{ Card, Gen uint32 }

// LookupGroup is Lookup for all tensors of a group, which are announced together. If all are cached, it appends their
// cards to dst, in the order of rs, and returns true: mark them all at once. Otherwise it returns dst unchanged, and
// false: post all of rs in full, one after the other. Do the same if the board refuses any of the marks. It allocates
// only if dst has no room.
func (w *Worker) LookupGroup(dst []CardGen, rs []*Request) ([]CardGen, bool) {
	n := len(dst)
	for _, r := range rs {
		card, gen, cached := w.Lookup(r)
		if !cached {
			for _, r := range rs {
				r.Contested = w.byName[r.Name] != nil
			}
			return dst[:n], false
		}
		dst = append(dst, CardGen{card, gen})
	}
	return dst, true
}

// Apply records a Response read from the lane's log. Each member applies every Response, in log order, between
// resolving the card records before and after it. It copies all that it keeps, except resp.Kept, which it makes if resp
// gives its name a card.
func (w *Worker) Apply(resp *Response) {
	if resp.Type == operation.Join || resp.Type == operation.Settle {
		// Every card that an earlier Response gave has been retired.
		clear(w.byName)
		clear(w.byCard)
		return
	}
	// A Response exists because a Request came in full, for which the coordinator has retired the name's card.
	w.drop(w.byName[resp.Name])
	if resp.Card == NoCard || resp.Err != "" {
		return
	}
	w.drop(w.byCard[resp.Card])
	// A new copy each time: a Response returned by Card may still be in use.
	c := *resp
	c.Shape = slices.Clone(resp.Shape)
	c.FirstDims = slices.Clone(resp.FirstDims)
	if resp.Kept = nil; c.Wire.Keeps() {
		resp.Kept = new(Kept)
	}
	c.Kept = resp.Kept
	w.byName[c.Name] = &c
	w.byCard[c.Card] = &c
}

func (w *Worker) drop(resp *Response) {
	if resp != nil {
		delete(w.byName, resp.Name)
		delete(w.byCard, resp.Card)
	}
}

// Cards calls f for each card with a name.
func (w *Worker) Cards(f func(card uint32, resp *Response)) {
	for card, resp := range w.byCard {
		f(card, resp)
	}
}

// Card resolves a card record of the log. The Response is shared: do not change it; later calls do not change it
// either. An error means that the card has no name here: the log is corrupt.
func (w *Worker) Card(card uint32) (*Response, error) {
	resp := w.byCard[card]
	if resp == nil {
		return nil, fmt.Errorf("card record %d: the card stands for nothing", card)
	}
	return resp, nil
}
