package frtrace

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/observe/flight"
)

// An operation's number is its Sequence, its place in the log that all members of its process set read. An operation on
// which the ranks have not agreed has no number yet. It gets one after all others, the same on each rank that waits for
// that name. If another rank has already read in the log that they have agreed, the operation has that rank's number.

// op is an operation of the job.
type op struct {
	set     int
	number  uint64 // in its process set, from 1 on
	agreed  bool
	records []*flight.Record // by dump; nil if the dump has none
}

// any returns one of the records.
func (o *op) any() *flight.Record {
	for _, r := range o.records {
		if r != nil {
			return r
		}
	}
	return nil
}

// tensor is the key by which ranks pair operations; the order of each rank's submissions of a key does the rest.
type tensor struct {
	set  int
	name string
}

// place says where an operation is in its process set: its Sequence, or, if that is 0, its index among the waiting
// operations of the tensor.
type place struct {
	tensor
	sequence uint64
	waiting  int
}

// order sorts the operations of the dumps by number, one process set after another.
func order(dumps []*flight.Dump) []*op {
	agreed := map[tensor][]uint64{} // ascending
	for _, d := range dumps {
		for _, r := range d.Records {
			if r.Sequence > 0 {
				t := tensor{r.Set, r.Name}
				if i, known := slices.BinarySearch(agreed[t], r.Sequence); !known {
					agreed[t] = slices.Insert(agreed[t], i, r.Sequence)
				}
			}
		}
	}
	at := map[place]*op{}
	var ops []*op
	for i, d := range dumps {
		read := map[int]uint64{} // by process set: how far the rank has read the log
		waiting := map[tensor]int{}
		for k := range d.Records {
			r := &d.Records[k]
			p := place{tensor: tensor{r.Set, r.Name}, sequence: r.Sequence}
			if r.Sequence == 0 {
				p.sequence = next(agreed[p.tensor], read[r.Set])
			}
			if p.sequence == 0 {
				p.waiting = waiting[p.tensor]
				waiting[p.tensor]++
			}
			read[r.Set] = max(read[r.Set], p.sequence)
			o := at[p]
			if o == nil {
				o = &op{set: r.Set, number: p.sequence, agreed: p.sequence > 0,
					records: make([]*flight.Record, len(dumps))}
				at[p] = o
				ops = append(ops, o)
			}
			o.records[i] = r
		}
	}
	sort(ops)
	return ops
}

// next is the first of the ascending numbers above n; 0 if there is none.
func next(numbers []uint64, n uint64) uint64 {
	i, known := slices.BinarySearch(numbers, n)
	if known {
		i++
	}
	if i == len(numbers) {
		return 0
	}
	return numbers[i]
}

// sort puts waiting operations behind the others of their process set, by their first submission. It numbers all
// operations anew within each process set, because the upper half of a Sequence counts how often the set was added.
func sort(ops []*op) {
	slices.SortStableFunc(ops, func(a, b *op) int {
		switch {
		case a.set != b.set:
			return a.set - b.set
		case a.agreed != b.agreed:
			if a.agreed {
				return -1
			}
			return 1
		case a.agreed:
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(a.since(), b.since())
	})
	var base, last uint64
	for i, o := range ops {
		if i == 0 || ops[i-1].set != o.set {
			base, last = o.number>>32<<32, 0
		}
		if o.agreed {
			o.number -= base
		} else {
			o.number = last + 1
		}
		last = o.number
	}
}

// since is when the first rank submitted the operation.
func (o *op) since() (first int64) {
	for _, r := range o.records {
		if r != nil && (first == 0 || r.Submitted < first) {
			first = r.Submitted
		}
	}
	return first
}
