//go:build !linux

package launch

// adviseHuge does nothing.
func adviseHuge([]byte) {}
