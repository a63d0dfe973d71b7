package engine

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestTraffic checks how many bytes each rank has sent, by link and class of sizes, and the bytes over the bus.
func TestTraffic(t *testing.T) {
	inWorlds(t, []int{2, 4}, func(t *testing.T, engines []*Engine) {
		if engines[0].world.can.Hierarchical {
			return // what each rank of a host sends is for the tests of package collective
		}
		const rounds, small, large = 5, 8 << 10, 64 << 10
		members := uint64(len(engines))
		each(engines, func(r int, e *Engine) {
			for range rounds {
				buf := make([]byte, large)
				for _, op := range []*Op{sum("sum", make([]byte, small)), {Type: operation.Broadcast, Name: "cast",
					DType: tensor.Uint8, Shape: tensor.Shape{large}, In: buf, Out: buf, Prescale: 1, Postscale: 1}} {
					if err := do(t, e, op); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			}
		})
		cast, way := uint64(0), feed.ByTCP
		for r, e := range engines {
			f := e.Figures()
			if e.world.can.Shared {
				way = feed.ByMemory
			}
			got := map[feed.Class]feed.Traffic{}
			for _, x := range f.Traffic {
				if x.Way != way || x.Time == 0 || got[x.Class].Bytes > 0 {
					t.Errorf("rank %d: %+v", r, f.Traffic)
				}
				got[x.Class] = x
			}
			want := uint64(rounds * small) // over messages once a round of doubling
			if way == feed.ByTCP {
				want *= members / 2
			}
			if n := got[feed.ClassOf(small)].Bytes; n != want {
				t.Errorf("rank %d has sent %d bytes for the allreduces, not %d", r, n, want)
			}
			cast += got[feed.ClassOf(large)].Bytes
			for _, w := range f.Works {
				bus := uint64(rounds * large)
				if w.Op == operation.Allreduce {
					bus = rounds * small * 2 * (members - 1) / members
				}
				if w.Bus != bus {
					t.Errorf("rank %d: %d bytes over the bus by %s, not %d", r, w.Bus, w.OpName(), bus)
				}
			}
		}
		want := uint64(rounds * large) // the root writes once, or each other rank gets all
		if way == feed.ByTCP {
			want *= members - 1
		}
		if cast != want {
			t.Errorf("the broadcasts have sent %d bytes, not %d", cast, want)
		}
	})
}

// TestLeastBytes checks what operations take at least, which counts for carriers that do not say what they send, and
// the factors of the bus bandwidth, which are those of NCCL's tests.
func TestLeastBytes(t *testing.T) {
	for kind, want := range map[operation.Kind][2]uint64{operation.Allreduce: {1500, 1500},
		operation.Adasum:    {1500, 1500},
		operation.Allgather: {750, 750}, operation.Broadcast: {750, 1000}, operation.Alltoall: {750, 750},
		operation.Reducescatter: {750, 750}, operation.Reduce: {750, 1000}} {
		d := kind.Describe()
		if got := [2]uint64{leastBytes(d, 1000, 4), busBytes(d, 1000, 4)}; got != want {
			t.Errorf("%s: %d, not %d", d.Name, got, want)
		}
		if n := leastBytes(d, 1000, 1) + busBytes(d, 1000, 1); n != 0 {
			t.Errorf("%s of one rank: %d", d.Name, n)
		}
	}
}
