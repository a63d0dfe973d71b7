//go:build !linux

package engine

// hostMemory is more than any host has, in bytes: on this platform nobody asks the kernel.
func hostMemory() int64 { return 1 << 46 }
