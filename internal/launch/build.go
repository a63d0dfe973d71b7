package launch

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/shape"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
)

// build identifies this program's protocols, such as 0.1.0+3f2a9c1b: the version, and a digest of all messages between
// launcher, agents and ranks. It tells apart two builds of one version whose messages differ.
var build = sync.OnceValue(func() string {
	return version.Version + "+" + shape.Digest(agentProtocol, note{}, cluster.Facts{}, cluster.Path{},
		time.Duration(0), elastic.Protocol, elastic.Hello{}, elastic.Message{}) + rendezvous.Shape()[:4]
})

// revision is the source revision that Go has noted for this program; empty if it has not.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	number, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			number = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", changed"
		}
	}
	if number == "" {
		return ""
	}
	return ", revision " + number + changed
}
