//go:build !linux

package cluster

// system knows nothing more here, because jobs run on Linux only.
func (f *Facts) system() { f.Online = f.Cores }
