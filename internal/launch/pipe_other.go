//go:build !linux

package launch

import "os"

// enlarge does nothing: no job is started.
func enlarge(*os.File) {}
