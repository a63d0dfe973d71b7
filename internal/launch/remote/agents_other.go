//go:build !linux

package remote

import "errors"

// AgentsHere is never called: no job is started.
func AgentsHere() ([]int, error) { return nil, errors.ErrUnsupported }
