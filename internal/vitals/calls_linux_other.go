//go:build linux && !amd64

package vitals

// oldSelect is no call of this architecture.
const oldSelect = -1
