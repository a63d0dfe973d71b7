package nodes

import (
	"net"
	"sync"
)

// Reception is where other nodes of an elastic job may come to node 0, at any time.
type Reception struct {
	*door
	came func(Node)

	mu     sync.Mutex
	closed bool
}

// Receive lets nodes come to l, which the Reception owns from then on. It passes each node to came, on some goroutine;
// came owns the node's connection. key is the secret that all nodes share. say gets lines for the user.
func Receive(l net.Listener, place Place, key []byte, came func(Node), say func(text string)) *Reception {
	r := &Reception{came: came}
	r.door = newDoor(l, place, key, r.enter, say)
	go r.serve()
	return r
}

func (r *Reception) enter(n *Node) {
	r.mu.Lock()
	late := r.closed
	r.mu.Unlock()
	if late {
		n.Conn.Close()
		return
	}
	r.came(*n)
}

// Close lets no more nodes in.
func (r *Reception) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.shut()
}
