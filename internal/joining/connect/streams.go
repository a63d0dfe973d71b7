package connect

import (
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// Rails returns over how many of its host's interfaces this rank could spread data. It is 0 if there is no other host,
// or the user has chosen the number of connections.
func Rails(c *config.Config, p roster.Place) int {
	if c.TCPStreams != 0 || p.LocalSize == p.Size {
		return 0
	}
	own, err := onInterfaces(c.Interfaces)
	if err != nil {
		return 0 // listen returns the error
	}
	return reach.Rails(own, len(c.Interfaces) > 0)
}

// Streams returns how many connections carry the data from one rank to another, if the user has not chosen: enough for
// the interfaces of the host that has the most. All ranks get the same number.
func Streams(members roster.Members) int {
	n := 1
	for r := range members {
		n = max(n, min(members[r].Rails, reach.MaxRails))
	}
	return n
}
