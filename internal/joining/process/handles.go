package process

import (
	"sync"

	"github.com/gorovod/gorovod/internal/core/engine"
)

// Handles numbers Entries for callers that can't hold pointers. It never uses a number twice.
type Handles struct {
	mu    sync.Mutex
	cells []handle
	free  []uint32
}

type handle struct {
	entry  *engine.Entry
	number int64 // upper bits: how often the cell was used; lower bits: its index + 1
}

const indexBits = 24

// Add returns a number for e. The number owns e.
func (h *Handles) Add(e *engine.Entry) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.add(e)
}

// AddUntilOK is Add for an operation whose Ended is h.ReleaseIfOK. If the operation succeeds, the number becomes
// invalid; if it has ended before, at once.
func (h *Handles) AddUntilOK(e *engine.Entry) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := h.add(e)
	if e.Done() && e.Err() == nil { // ReleaseIfOK has found no number, or will find none once it has the lock
		h.remove(number)
		e.Release()
		return number
	}
	e.Tag = number
	return number
}

// ReleaseIfOK removes and releases an Entry of AddUntilOK that has succeeded. It is the Ended of such operations.
func (h *Handles) ReleaseIfOK(e *engine.Entry) {
	if e.Err() != nil {
		return
	}
	h.mu.Lock()
	gone := h.remove(e.Tag)
	h.mu.Unlock()
	if gone != nil {
		gone.Release()
	}
}

func (h *Handles) add(e *engine.Entry) int64 {
	if len(h.free) == 0 {
		h.cells = append(h.cells, handle{number: int64(len(h.cells) + 1)})
		h.free = append(h.free, uint32(len(h.cells)-1))
	}
	i := h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	h.cells[i].entry = e
	return h.cells[i].number
}

// Get returns the Entry, retained: the caller releases it. It returns nil for an invalid number.
func (h *Handles) Get(number int64) *engine.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.find(number); s != nil {
		s.entry.Retain()
		return s.entry
	}
	return nil
}

// Remove invalidates the number and returns its Entry, or nil.
func (h *Handles) Remove(number int64) *engine.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remove(number)
}

func (h *Handles) remove(number int64) *engine.Entry {
	s := h.find(number)
	if s == nil {
		return nil
	}
	e := s.entry
	s.entry = nil
	s.number += 1 << indexBits
	h.free = append(h.free, uint32(number&(1<<indexBits-1))-1)
	return e
}

func (h *Handles) find(number int64) *handle {
	i := number&(1<<indexBits-1) - 1
	if number <= 0 || i < 0 || i >= int64(len(h.cells)) {
		return nil
	}
	if s := &h.cells[i]; s.number == number && s.entry != nil {
		return s
	}
	return nil
}
