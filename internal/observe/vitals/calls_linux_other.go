//go:build linux && !amd64

package vitals

// oldSelect: this architecture does not have the call.
const oldSelect = -1
