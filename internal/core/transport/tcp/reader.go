package tcp

import (
	"errors"
	"fmt"
)

// serve reads c to its end and calls take for every message of the stream; take reads the payload. It reports whether
// the other end has left in good order. If the lane is closed meanwhile, the caller calls drain.
func (n *Network) serve(c *conn, in *incoming, take func(header) error) (left bool) {
	for {
		h, err := in.next()
		if err == nil {
			switch h.kind {
			case messageGoodbye:
				n.departed(c.rank)
				n.drop(c)
				return true
			case messageLaneClosed:
				// A receive that waits for more ends when this rank closes the lane.
				n.drop(c)
				return false
			case messageAbort:
				if err = n.takeAbort(in.r, h); err == nil {
					return false
				}
			default:
				err = take(h)
			}
		}
		if err != nil {
			return n.failed(c, err)
		}
	}
}

// watchSilent reads the silent direction of a connection that this rank has dialled.
func (n *Network) watchSilent(c *conn) {
	n.serve(c, &incoming{r: c}, func(h header) error {
		return fmt.Errorf("message of kind %d in the silent direction", h.kind)
	})
	if c.abandoned() {
		n.drop(c)
	}
}

// errEnding ends a reader: the network has been aborted or closed, or the lane has been closed.
var errEnding = errors.New("the network or the lane has come to its end")
