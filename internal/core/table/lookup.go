package table

import (
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// Lookup is what one rank asks of a table for a batch: its distinct keys, by the member that owns them. It is used
// again for other batches, and keeps its memory.
type Lookup struct {
	// Keys are the distinct keys: first those of member 0, and so on, and those of one member in the order of their
	// first appearance.
	Keys []int64
	// Counts is how many of Keys each member owns.
	Counts []int32
	// Index is, for each key of the batch, its place in Keys; len(Keys) for the padding key.
	Index []int64
	// Shape is for the caller: that of a row for each of Keys.
	Shape [2]int64

	owners []uint16 // of the distinct keys in the order of appearance, as found are the keys
	found  []int64
	places []int64 // in the order of appearance: the place in Keys
	begins []int64
	seen   []sighting // a hash table
	round  uint32     // of seen: entries of other rounds are empty
}

type sighting struct {
	key   int64
	at    uint32 // in found
	round uint32
}

// mostKeys is the most keys of a batch.
const mostKeys = math.MaxInt32

// Padding is a key that stands for no row; none if Set is false.
type Padding struct {
	Set bool
	Key int64
}

// Fill makes l the lookup of a batch's keys in a table whose slots are divided as owners says.
func (l *Lookup) Fill(o *Options, owners *slots.Map, keys []int64, padding Padding) error {
	if len(keys) > mostKeys {
		return fmt.Errorf("%d keys; at most %d are possible", len(keys), mostKeys)
	}
	l.prepare(len(keys), owners.Size())
	mask := uint64(len(l.seen) - 1)
	for i, key := range keys {
		if padding.Set && key == padding.Key {
			l.Index[i] = -1
			continue
		}
		if o.Keys > 0 && uint64(key) >= uint64(o.Keys) {
			return fmt.Errorf("key %d at position %d is not one of 0 to %d", key, i, o.Keys-1)
		}
		hash := slots.Hash(key)
		at := hash & mask
		for l.seen[at].round == l.round && l.seen[at].key != key {
			at = (at + 1) & mask
		}
		if s := &l.seen[at]; s.round != l.round {
			*s = sighting{key, uint32(len(l.found)), l.round}
			owner := owners.OwnerOf(hash)
			l.found, l.owners = append(l.found, key), append(l.owners, uint16(owner))
			l.Counts[owner]++
		}
		l.Index[i] = int64(l.seen[at].at)
	}
	l.sort()
	return nil
}

// prepare makes room for a batch of n keys.
func (l *Lookup) prepare(n, members int) {
	if size := 1 << bitsFor(2*n); len(l.seen) < size || l.round == math.MaxUint32 {
		l.seen, l.round = make([]sighting, max(size, len(l.seen))), 0
	}
	l.round++
	l.found, l.owners = l.found[:0], l.owners[:0]
	l.Index = resized(l.Index, n)
	l.Counts = resized(l.Counts, members)
	clear(l.Counts)
}

// sort puts the distinct keys in the order of their owners.
func (l *Lookup) sort() {
	n := len(l.found)
	l.Keys = resized(l.Keys, n)
	l.begins = resized(l.begins, len(l.Counts))
	begin := int64(0)
	for m, count := range l.Counts {
		l.begins[m] = begin
		begin += int64(count)
	}
	l.places = resized(l.places, n)
	for i, key := range l.found {
		at := &l.begins[l.owners[i]]
		l.Keys[*at], l.places[i] = key, *at
		*at++
	}
	for i, at := range l.Index {
		if at < 0 {
			l.Index[i] = int64(n)
		} else {
			l.Index[i] = l.places[at]
		}
	}
}

// bitsFor is the least b with 1<<b >= n.
func bitsFor(n int) int {
	b := 3
	for 1<<b < n {
		b++
	}
	return b
}

// resized returns a slice of n elements in s's memory if that suffices. Their contents are undefined.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
