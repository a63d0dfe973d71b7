//go:build !linux

package launch

import "errors"

// agentsHere is never called: no job is started.
func agentsHere() ([]int, error) { return nil, errors.ErrUnsupported }
