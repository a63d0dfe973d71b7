// Package version says which version this is.
package version

//go:generate go test -run TestPython -update

// Version is gorovod's own, and this is its one place; Horovod is that of the interface it offers, for
// programs that check it.
const (
	Version = "0.1.0"
	Horovod = "0.28.1"
)
