package wire

import (
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/shape"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
)

// Build identifies this program's protocols, such as 0.1.0+3f2a9c1b: the version, and a digest of all messages between
// launcher, agents and ranks. It tells apart two builds of one version whose messages differ.
var Build = sync.OnceValue(func() string {
	return version.Version + "+" + shape.Digest(Protocol, Note{}, cluster.Facts{}, cluster.Path{},
		time.Duration(0), elastic.Protocol, elastic.Hello{}, elastic.Message{}) + rendezvous.Shape()[:4]
})
