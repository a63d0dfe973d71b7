//go:build !linux

package cluster

// system fills in nothing: jobs run on Linux only.
func (f *Facts) system() { f.Online = f.Cores }
