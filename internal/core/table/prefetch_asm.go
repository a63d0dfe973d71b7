//go:build amd64 || arm64

package table

// prefetch begins to read the memory from each of n addresses to last bytes behind it, and does not wait. Only the time
// that later reads take depends on it.
//
//go:noescape
func prefetch(addresses *lines, n, last int)
