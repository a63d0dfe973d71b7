//go:build !linux

package pulse

import "time"

// keepAlive does nothing where Silence cannot tell.
func keepAlive(int, time.Duration) error { return nil }

// Silence is not known here.
func Silence(int) (time.Duration, error) { return 0, nil }
