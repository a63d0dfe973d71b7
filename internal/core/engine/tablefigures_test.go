package engine

import (
	"math/rand"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestBytesOfTables counts what pulls and pushes send, and compares it with what they have to send: a key for each row
// of another rank, and the row or its gradient.
func TestBytesOfTables(t *testing.T) {
	inWorlds(t, []int{2, 4}, func(t *testing.T, engines []*Engine) {
		const batch, dim, rounds = 5000, 16, 3
		owners := slots.Assign(len(engines))
		least := make([]uint64, len(engines)) // of each rank
		keys := make([][]int64, len(engines))
		for r := range keys {
			rng := rand.New(rand.NewSource(int64(r)))
			for range batch {
				key := rng.Int63()
				keys[r] = append(keys[r], key)
				if owner := owners.OwnerOf(slots.Hash(key)); owner != r {
					least[r] += rounds * (8 + 8 + 4*dim) // the keys of a pull, and all of a push
					least[owner] += rounds * 4 * dim     // the rows of a pull
				}
			}
		}
		each(engines, func(r int, e *Engine) {
			o := tableOptions("t", dim, table.RowwiseAdagrad)
			tb, err := e.NewTable(0, o)
			if err != nil {
				t.Error(err)
				return
			}
			var l table.Lookup
			rows := make([]float32, batch*dim)
			for range rounds {
				if err := tb.Fill(&l, keys[r], table.Padding{}); err != nil {
					t.Error(err)
				}
				for _, op := range []Op{tb.Pull(&l, rows, false), tb.Push(&l, rows, 0.1)} {
					if err := do(t, e, &op); err != nil {
						t.Error(err)
					}
				}
			}
		})
		var sent, all, rows uint64
		for r, e := range engines {
			f := e.Figures()
			all += least[r]
			for _, x := range f.Traffic {
				sent += x.Bytes
			}
			if len(f.Tables) != 1 {
				t.Fatalf("rank %d: %+v", r, f.Tables)
			}
			tb := f.Tables[0]
			rows += tb.Rows
			if tb.Name != "t" || tb.Set != 0 || tb.Pulls != rounds || tb.Pushes != rounds || tb.PullTime == 0 ||
				tb.PushTime == 0 || tb.Keys != rounds*batch || tb.Bytes < tb.Rows*4*dim || tb.Hottest > 100000 {
				t.Errorf("rank %d: %+v", r, tb)
			}
		}
		if rows != uint64(len(engines))*batch {
			t.Errorf("%d rows", rows)
		}
		if sent < all || sent > all*11/10 {
			t.Errorf("%d bytes were sent; at least %d are needed, and a tenth more is allowed", sent, all)
		}
	})
}

// TestFiguresOfTablesThatTravelTogether: two tables in one exchange share its time.
func TestFiguresOfTablesThatTravelTogether(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		var ops []Op
		lookups := make([]table.Lookup, 2)
		for i, name := range []string{"a", "b"} {
			tb, err := e.NewTable(0, tableOptions(name, 4, table.SGD))
			if err != nil {
				t.Error(err)
				return
			}
			keys := make([]int64, 10+1000*i)
			for k := range keys {
				keys[k] = int64(k) * int64(1-i) // of b one key alone
			}
			if err := tb.Fill(&lookups[i], keys, table.Padding{}); err != nil {
				t.Error(err)
			}
			ops = append(ops, tb.Pull(&lookups[i], make([]float32, 4*len(lookups[i].Keys)), false))
		}
		entries, err := e.EnqueueGroup("both", ops)
		if err != nil {
			t.Error(err)
			return
		}
		for _, en := range entries {
			if err := finish(t, e, en); err != nil {
				t.Error(err)
			}
			en.Release()
		}
		f := e.Figures()
		sum, works := uint64(0), uint64(0)
		for _, w := range f.Works {
			if w.Op == operation.Pull {
				works += w.Times.Sum
			}
		}
		for i, want := range []feed.Table{{Name: "a", Keys: 10}, {Name: "b", Keys: 1, Hottest: 1e6}} {
			got := f.Tables[i]
			sum += got.PullTime
			if got.Name != want.Name || got.Keys != want.Keys || got.Pulls != 1 || got.Hottest < want.Hottest {
				t.Errorf("rank %d: %+v, want %+v", r, got, want)
			}
		}
		if sum > works || sum < works*9/10 {
			t.Errorf("rank %d: the tables have %d ns of %d", r, sum, works)
		}
	})
}
