package reduce

import "unsafe"

// lineBytes is a cache line: the number of bytes that a processor moves between caches and memory at a time.
const lineBytes = 64

// streamLeast is the least length for which Stream goes past the caches.
const streamLeast = 1 << 10

// Stream copies src to dst, of the same length, past this core's caches to memory if the processor can, for another
// core that reads dst next. If the two cores share no cache, that is much faster than fetching the lines that a plain
// copy has changed from this core's cache. If they share one, it is slower. A store after Stream has returned becomes
// visible after dst's new contents. dst and src do not overlap.
func Stream(dst, src []byte) { streamWith(best, dst, src) }

func streamWith(v variant, dst, src []byte) {
	dst = dst[:len(src)]
	if v == portable || len(src) < streamLeast {
		copy(dst, src)
		return
	}
	head := -int(uintptr(unsafe.Pointer(unsafe.SliceData(dst)))) & (lineBytes - 1)
	whole := (len(src) - head) &^ (lineBytes - 1)
	copy(dst[:head], src)
	copy(dst[head+whole:], src[head+whole:])
	dst, src = dst[head:head+whole], src[head:head+whole]
	srcs := [1][]byte{src}
	for at := 0; at < whole; at += callBytes {
		streamRange(v, dst, srcs[:], at, min(at+callBytes, whole))
	}
}
