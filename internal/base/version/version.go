// Package version says which version this is.
package version

//go:generate go test -run TestPython -update

// Version is gorovod's version; it is written only here. Horovod is the version of Horovod's interface, for programs
// that check it.
const (
	Version = "0.1.0"
	Horovod = "0.28.1"
)
