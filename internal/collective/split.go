package collective

// lineBytes is the unit in which data is dealt out, so that parts start on the
// cache lines of an aligned buffer and no element is split.
const lineBytes = 64

// share is the range of bytes that is part i when length bytes are dealt out to
// n: equal whole lines, but for the last part that is not empty.
func share(length, n, i int) (lo, hi int) {
	each := alignUp(ceilDiv(length, n), lineBytes)
	lo = min(i*each, length)
	return lo, min(lo+each, length)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func alignUp(n, unit int) int { return ceilDiv(n, unit) * unit }
