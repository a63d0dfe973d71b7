package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// opening is a network that calls back while a process set's lane opens, and then fails to open it.
type opening struct {
	transport.Network
	amid func()
}

func (n *opening) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	if id == 0 {
		return n.Network.OpenLane(id, incarnation, members)
	}
	n.amid()
	return nil, errors.New("the network is closed")
}

// A shutdown takes the network away while another thread adds a process set. The network reports no cause then.
func TestAddSetAmidAShutdown(t *testing.T) {
	n := &opening{Network: inproc.NewWorld(1, inproc.Options{Shared: true, Cards: 8})[0]}
	e, err := New(n, Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.amid = func() { e.Shutdown(limit) }
	if id, err := e.AddSet(nil); err == nil || !strings.Contains(err.Error(), shutDownText) {
		t.Errorf("AddSet returns %d, %v", id, err)
	}
}
