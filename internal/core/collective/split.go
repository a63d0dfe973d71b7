package collective

import (
	"fmt"
	"math"
)

// lineBytes is the unit in which data is dealt out, so that parts start on the
// cache lines of an aligned buffer and no element is split.
const lineBytes = 64

// share is the range of bytes of part i, if length bytes are dealt out in n parts. Each part has the same number of
// whole lines, except the last part that is not empty.
func share(length, n, i int) (lo, hi int) {
	each := alignUp(ceilDiv(length, n), lineBytes)
	lo = min(i*each, length)
	return lo, min(lo+each, length)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func alignUp(n, unit int) int { return ceilDiv(n, unit) * unit }

// deal sets bounds to the places of the members' parts, which have counts bytes, and returns the sum.
func (l *Lane) deal(bounds []int, counts []int64) (int, error) {
	if len(counts) != l.size {
		return 0, fmt.Errorf("%d counts for %d members", len(counts), l.size)
	}
	total := int64(0)
	for m, c := range counts {
		if c < 0 || c > math.MaxInt-total {
			return 0, fmt.Errorf("member %d cannot have %d bytes", m, c)
		}
		bounds[m] = int(total)
		total += c
	}
	bounds[l.size] = int(total)
	return int(total), nil
}
