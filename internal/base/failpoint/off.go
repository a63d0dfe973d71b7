//go:build !failpoints

// Package failpoint makes a rank fail at a named point of its own code, for tests. It does so with the build tag
// failpoints, where GOROVOD_FAILPOINT says which point, and how (on.go). Without the tag, its functions are empty and
// cost nothing.
package failpoint

// Enabled: this build has failpoints.
const Enabled = false

// Here is a point at which the environment can make the rank fail.
func Here(string) {}

// Share offers words that other processes share, for the action corrupt.
func Share(string, ...[]byte) {}

// Scramble is a point at which the action corrupt changes p, which other ranks read.
func Scramble(string, []byte) {}
