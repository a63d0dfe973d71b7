// Package cachesize says how large arrays must be so that a measurement of memory does not measure a cache.
package cachesize

import (
	"os"
	"strconv"
	"strings"
)

// Last is the size of the processor's last cache in bytes; 32 MiB if unknown.
func Last() int {
	for _, index := range []string{"index3", "index2"} {
		text, _ := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/" + index + "/size")
		if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "K")); err == nil && kib > 0 {
			return kib << 10
		}
	}
	return 32 << 20
}
