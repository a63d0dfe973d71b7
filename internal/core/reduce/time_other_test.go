//go:build !linux

package reduce

import "time"

var started = time.Now()

// threadTime is the time on the clock, because a thread's own time is not available here.
func threadTime() time.Duration { return time.Since(started) }
