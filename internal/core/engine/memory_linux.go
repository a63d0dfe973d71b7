package engine

import (
	"math"
	"sync"

	"golang.org/x/sys/unix"
)

// hostMemory is the size in bytes of this host's memory, swap included. It is math.MaxInt64 if the kernel does not
// tell.
var hostMemory = sync.OnceValue(func() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxInt64
	}
	unit := uint64(max(1, info.Unit))
	units := uint64(info.Totalram) + uint64(info.Totalswap)
	if units == 0 || units > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return int64(units * unit)
})
