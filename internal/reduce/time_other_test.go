//go:build !linux

package reduce

import "time"

var started = time.Now()

// threadTime is the time on the clock, where a thread's own is not to be had.
func threadTime() time.Duration { return time.Since(started) }
