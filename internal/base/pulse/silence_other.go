//go:build !linux

package pulse

import "time"

// keepAlive does nothing, because Silence knows nothing here.
func keepAlive(int, time.Duration) error { return nil }

// Stuck knows nothing here.
func Stuck(int) int { return 0 }

// Silence knows nothing here.
func Silence(int) (time.Duration, error) { return 0, nil }
