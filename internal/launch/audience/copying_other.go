//go:build !linux

package audience

// adviseHuge does nothing.
func adviseHuge([]byte) {}
