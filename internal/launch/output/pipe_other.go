//go:build !linux

package output

import "os"

// enlarge does nothing: no job is started.
func enlarge(*os.File) {}
