//go:build !linux

package world

// processor is unknown.
func processor() uint64 { return 0 }

// resident is unknown.
func resident() uint64 { return 0 }
