package slots

import (
	"math/bits"
	"testing"
)

func TestSharesDifferByOneAtMost(t *testing.T) {
	for size := range 300 {
		checkShares(t, size+1)
	}
	for _, size := range []int{1000, 4095, 4096, 4097, 5000} {
		checkShares(t, size)
	}
}

func checkShares(t *testing.T, size int) {
	t.Helper()
	m := Assign(size)
	owns := make([]int, size)
	for s := range Count {
		owns[m.Owner(s)]++
	}
	for rank, n := range owns {
		if n < Count/size || n > (Count+size-1)/size {
			t.Fatalf("of %d ranks rank %d owns %d slots", size, rank, n)
		}
	}
	if m.Size() != size || len(m.Owned(size-1)) != owns[size-1] {
		t.Fatalf("the map of %d ranks says it is of %d, and rank %d owns %d or %d", size, m.Size(), size-1,
			len(m.Owned(size-1)), owns[size-1])
	}
}

// TestFewestMove compares maps of two sizes: slots that the smaller one's ranks exchange would move for nothing.
func TestFewestMove(t *testing.T) {
	maps := make([]*Map, 70)
	for size := 1; size < len(maps); size++ {
		maps[size] = Assign(size)
	}
	for from := 1; from < len(maps); from++ {
		for to := from + 1; to < len(maps); to++ {
			for s := range Count {
				if a, b := maps[from].Owner(s), maps[to].Owner(s); a != b && b < from {
					t.Fatalf("from %d to %d ranks slot %d moves from rank %d to rank %d", from, to, s, a, b)
				}
			}
		}
	}
}

func TestKeepersAreOnOtherHosts(t *testing.T) {
	for _, hosts := range [][]int{{0}, {0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2}, {3, 3, 4, 5, 5, 5}} {
		m := Assign(len(hosts))
		several := false
		for _, h := range hosts {
			several = several || h != hosts[0]
		}
		keeps := make([]int, len(hosts))
		for s, keeper := range m.Keeper(hosts) {
			owner := m.Owner(s)
			switch {
			case len(hosts) == 1:
				if keeper != -1 {
					t.Fatalf("one rank: slot %d has a copy on rank %d", s, keeper)
				}
				continue
			case keeper == owner || several && hosts[keeper] == hosts[owner]:
				t.Fatalf("hosts %v: slot %d of rank %d has its copy on rank %d", hosts, s, owner, keeper)
			}
			keeps[keeper]++
		}
		for rank, n := range keeps {
			if len(hosts) > 1 && n == 0 {
				t.Errorf("hosts %v: rank %d keeps no copies", hosts, rank)
			}
		}
	}
}

// TestHashIsForEver holds numbers on which saved state relies.
func TestHashIsForEver(t *testing.T) {
	for key, want := range map[int64]uint64{0: 0, 1: 0xb456bcfc34c2cb2c, -1: 0x64b5720b4b825f21,
		1 << 40: 0xe80f632ed2f232f6} {
		if got := Hash(key); got != want {
			t.Errorf("the hash of %d is %#x", key, got)
		}
	}
	flips := 0
	for bit := range 64 {
		flips += bits.OnesCount64(Hash(12345) ^ Hash(12345^1<<bit))
	}
	if flips < 64*28 || flips > 64*36 {
		t.Errorf("a bit of the key changes %d of %d bits", flips, 64*64)
	}
	m := Assign(7)
	for key := range int64(100) {
		if h := Hash(key); m.OwnerOf(h) != m.Owner(Of(h)) {
			t.Errorf("key %d has two owners", key)
		}
	}
}
