//go:build !linux

package bench

// processorTime is unknown on this system.
func (c *contender) processorTime() (seconds float64) { return 0 }
