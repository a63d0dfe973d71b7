package negotiate

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/operation"
)

// Worker is one member's part of a lane: the cache of Responses that can be
// repeated by slot. It holds what the lane's log has said up to the record that
// was applied last; members that have read equally far hold the same.
//
// A Worker is not safe for concurrent use.
type Worker struct {
	member int
	byName map[string]*Response
	bySlot map[uint32]*Response // the same Responses
}

// NewWorker makes the Worker of a lane's member (its index in the lane, not
// its world rank).
func NewWorker(member int) *Worker {
	return &Worker{
		member: member,
		byName: make(map[string]*Response),
		bySlot: make(map[uint32]*Response),
	}
}

// Lookup says how to announce r. If cached, slot and gen are to be marked on
// the board, and r posted in full only if the board refuses them as stale;
// otherwise r is to be posted in full at once. A name may not be announced
// again before its last Response or slot record has been read from the log.
// Lookup sets r.Contested, and does not allocate. If cached, r.Name has become the
// cache's copy of the same name, which lives as long as anybody has it.
func (w *Worker) Lookup(r *Request) (slot, gen uint32, cached bool) {
	resp := w.byName[r.Name]
	r.Contested = resp != nil && !resp.answers(r, w.member)
	if resp == nil || r.Contested {
		return NoSlot, 0, false
	}
	r.Name = resp.Name
	return resp.Slot, resp.Gen, true
}

// SlotGen names a slot under one of its generations.
type SlotGen struct{ Slot, Gen uint32 }

// LookupGroup is Lookup for all tensors of a group, which are announced in one
// way: it appends to dst what is to be marked, in the order of rs and all at
// once, and returns true; or returns dst as it was, and false: then all of rs are
// to be posted in full, one after the other, as when the board refuses a single
// one of the marks. It allocates only where dst has no room.
func (w *Worker) LookupGroup(dst []SlotGen, rs []*Request) ([]SlotGen, bool) {
	n := len(dst)
	for _, r := range rs {
		slot, gen, cached := w.Lookup(r)
		if !cached {
			for _, r := range rs {
				r.Contested = w.byName[r.Name] != nil
			}
			return dst[:n], false
		}
		dst = append(dst, SlotGen{slot, gen})
	}
	return dst, true
}

// Apply records a Response read from the lane's log. Each member applies every
// Response, in log order, between resolving the slot records before and after
// it. It copies what it keeps.
func (w *Worker) Apply(resp *Response) {
	if resp.Type == operation.Join || resp.Type == operation.Settle {
		// Every slot that was given by an earlier Response has been retired.
		clear(w.byName)
		clear(w.bySlot)
		return
	}
	// A Response exists because a Request came in full, on which the coordinator
	// has retired the slot that the name had.
	w.drop(w.byName[resp.Name])
	if resp.Slot == NoSlot || resp.Err != "" {
		return
	}
	w.drop(w.bySlot[resp.Slot])
	// A new copy each time: a Response returned by Slot may still be in use.
	c := *resp
	c.Shape = slices.Clone(resp.Shape)
	c.FirstDims = slices.Clone(resp.FirstDims)
	w.byName[c.Name] = &c
	w.bySlot[c.Slot] = &c
}

func (w *Worker) drop(resp *Response) {
	if resp != nil {
		delete(w.byName, resp.Name)
		delete(w.bySlot, resp.Slot)
	}
}

// Slots calls f for each slot that stands for something.
func (w *Worker) Slots(f func(slot uint32, resp *Response)) {
	for slot, resp := range w.bySlot {
		f(slot, resp)
	}
}

// Slot resolves a slot record of the log. The Response is shared and must not
// be changed; later calls do not change it either. An error means that the
// slot stands for nothing here: the log is corrupt.
func (w *Worker) Slot(slot uint32) (*Response, error) {
	resp := w.bySlot[slot]
	if resp == nil {
		return nil, fmt.Errorf("slot record %d: the slot stands for nothing", slot)
	}
	return resp, nil
}
