// Package slots divides 64-bit keys among the ranks of a process set, and says which rank keeps a copy of which part. A
// key belongs to one of 4,096 slots for ever; a pure function assigns the slots to ranks. So all ranks know without a
// message where a key is, and state is saved and moved by slots. The package holds no state.
package slots

// Count is the number of slots. Saved state relies on it.
const Count = 4096

// Hash mixes a key so that keys that differ in any bit differ in about half of the bits. No two keys have one hash.
// Saved state relies on it: it is MurmurHash3's last step for 64 bits.
func Hash(key int64) uint64 {
	h := uint64(key)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}

// Of is the slot of the key that has a hash: its 12 highest bits.
func Of(hash uint64) int { return int(hash >> 52) }

// Map says which rank owns each slot, for one number of ranks. It does not change.
type Map struct {
	size   int
	owners [Count]uint16
}

// Assign returns the map for size ranks, from 1 on.
//
//   - Any two ranks own equally many slots, or one of them owns one more.
//   - Where ranks are added, slots move only to the added ranks; where the last ranks leave, only theirs move.
//
// The map for n+1 ranks is that for n ranks, of which each rank with too many slots gives its latest ones to the new
// rank. Beyond Count ranks the others own nothing.
func Assign(size int) *Map {
	m := &Map{size: size}
	owned := make([][]uint16, 1, min(size, Count))
	for s := range uint16(Count) {
		owned[0] = append(owned[0], s)
	}
	for n := 2; n <= min(size, Count); n++ {
		share, more := Count/n, Count%n
		added := make([]uint16, 0, share)
		for rank, slots := range owned {
			keep := share
			if rank < more { // lower ranks never have fewer
				keep++
			}
			added = append(added, slots[keep:]...)
			owned[rank] = slots[:keep:keep]
		}
		owned = append(owned, added)
	}
	for rank, slots := range owned {
		for _, s := range slots {
			m.owners[s] = uint16(rank)
		}
	}
	return m
}

// Size is the number of ranks.
func (m *Map) Size() int { return m.size }

// Owner is the rank that owns a slot.
func (m *Map) Owner(slot int) int { return int(m.owners[slot]) }

// OwnerOf is the rank that owns the slot of a key, given by the key's hash.
func (m *Map) OwnerOf(hash uint64) int { return int(m.owners[Of(hash)]) }

// Owned lists the slots of a rank, ascending.
func (m *Map) Owned(rank int) []int {
	var owned []int
	for s, owner := range m.owners {
		if int(owner) == rank {
			owned = append(owned, s)
		}
	}
	return owned
}

// Keeper is the rank that keeps a copy of each slot; hosts has the number of each rank's host. The keeper is on another
// host than the owner, where there is one, and otherwise another rank. An owner's slots go to all possible keepers by
// turns, so that the loss of a rank burdens no single one. With one rank there are no copies, and Keeper is -1.
func (m *Map) Keeper(hosts []int) (keepers [Count]int) {
	possible := make([][]int, m.size)
	for owner := range possible {
		for _, elsewhere := range [2]bool{true, false} {
			for i := 1; i < m.size && (elsewhere || len(possible[owner]) == 0); i++ {
				if rank := (owner + i) % m.size; !elsewhere || hosts[rank] != hosts[owner] {
					possible[owner] = append(possible[owner], rank)
				}
			}
		}
	}
	turns := make([]int, m.size)
	for s, owner := range m.owners {
		keepers[s] = -1
		if among := possible[owner]; len(among) > 0 {
			keepers[s] = among[turns[owner]%len(among)]
			turns[owner]++
		}
	}
	return keepers
}
