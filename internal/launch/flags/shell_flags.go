package flags

import (
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// RemoteShell is the way to other hosts.
func (f *Flags) RemoteShell() remote.Shell {
	r := remote.Shell{Identity: f.SSHIdentityFile, Agent: f.RemoteCommand, Timeout: f.ConnectTimeout(),
		Getenv: os.Getenv}
	if f.SSHPort != nil {
		r.Port = *f.SSHPort
	}
	r.Self, _ = os.Executable() // without it, what others are asked for is enough
	if path, _, err := spawn.FindCommand(f.Command[0], os.Getenv("PATH")); err == nil && filepath.IsAbs(path) {
		r.Near = append(r.Near, filepath.Dir(path))
	}
	for _, home := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if home != "" {
			r.Near = append(r.Near, filepath.Join(home, "bin"))
		}
	}
	return r
}
