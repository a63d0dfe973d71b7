package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// Node is a node of the job that has come to node 0.
type Node struct {
	Rank  int    // below 0 if the node has none
	Host  string // the node's own name for itself
	Slots int    // how many processes the node may run
	// Conn is the connection to the node's Join; nil for node 0 itself. Its owner closes it.
	Conn *auth.Sealed
}

// Gathering is where the other nodes come to node 0. Its methods may be called on any goroutine.
type Gathering struct {
	*door
	change chan struct{} // capacity 1: a node has come
	ends   func(*auth.Sealed)

	mu     sync.Mutex
	here   map[int]*Node // by rank, including node 0
	closed bool
}

// Gather lets the other nodes come to l, which the Gathering owns from then on. self is node 0's own entry; key is the
// secret that all nodes share. replaced gets, and closes, the connection of a node in whose place another one has come.
// say gets lines for the user. Both are called on any goroutine.
func Gather(l net.Listener, place Place, self Node, key []byte, replaced func(*auth.Sealed),
	say func(text string)) *Gathering {
	g := &Gathering{change: make(chan struct{}, 1), ends: replaced, here: map[int]*Node{0: &self}}
	g.door = newDoor(l, place, key, g.enter, say)
	go g.serve()
	return g
}

// Wait blocks until all nodes are here, and returns them by rank. The caller then owns their connections. If ctx ends
// first, the error names the missing nodes. While Wait waits, it tells the user now and then which nodes are missing.
func (g *Gathering) Wait(ctx context.Context) ([]Node, error) {
	pause := firstWord
	word := time.NewTimer(pause)
	defer word.Stop()
	for {
		g.mu.Lock()
		if len(g.here) == g.place.Count {
			defer g.mu.Unlock()
			g.closed = true
			all := make([]Node, g.place.Count)
			for rank, n := range g.here {
				all[rank] = *n
			}
			return all, nil
		}
		missing := g.missing()
		g.mu.Unlock()
		select {
		case <-g.change:
		case <-word.C:
			text := "waiting for " + missing
			if pause == firstWord {
				text += astray(ctx, g.place.Head)
			}
			g.say(text)
			pause = min(2*pause, lastWord)
			word.Reset(pause)
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				if why := g.door.uncertified.Load(); why != nil {
					return nil, fmt.Errorf("%s did not come to node 0 in time; the last that was turned away: %w",
						missing, *why)
				}
				return nil, fmt.Errorf("%s did not come to node 0 in time, at port %d of this host: do they run the "+
					"same command, do they find %s, and may they connect to it? --start-timeout gives them more time",
					missing, g.place.Port, g.place.Head)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// The pauses between messages to a user who waits.
const (
	firstWord = 5 * time.Second
	lastWord  = time.Minute
)

// lookupTimeout is how long node 0 may take to look its own name up.
const lookupTimeout = 2 * time.Second

// astray says, for the end of a message, that node 0's name leads to other hosts than this one, where the other nodes
// look in vain; empty if it leads here, or if that cannot be told. It blocks for at most lookupTimeout.
func astray(ctx context.Context, head string) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", head)
	if err != nil || len(found) == 0 {
		return ""
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range found {
		a = a.Unmap().WithZone("")
		here := func(o net.Addr) bool {
			p, err := netip.ParsePrefix(o.String())
			return err == nil && p.Addr() == a
		}
		if a.IsLoopback() || slices.ContainsFunc(own, here) {
			return ""
		}
	}
	return fmt.Sprintf(". They look for node 0 at %s (%v), which is no address of this host: unless something there "+
		"leads on to here, another node is node 0 (--node-rank, --master-addr)", head, found[0].Unmap())
}

// missing names the nodes that are not here. g.mu is held.
func (g *Gathering) missing() string {
	var ranks []string
	for rank := range g.place.Count {
		if g.here[rank] == nil {
			ranks = append(ranks, fmt.Sprint(rank))
		}
	}
	word, more := "nodes", ""
	if len(ranks) == 1 {
		word = "node"
	}
	if n := len(ranks) - 16; n > 0 {
		ranks, more = ranks[:16], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s %s%s (of %d)", word, strings.Join(ranks, ", "), more, g.place.Count)
}

// Close ends the gathering. It closes the connections that Wait has not returned.
func (g *Gathering) Close() {
	g.mu.Lock()
	left := g.here
	if g.closed {
		left = nil
	}
	g.closed = true
	g.mu.Unlock()
	g.shut()
	for _, n := range left {
		if n.Conn != nil {
			n.Conn.Close()
		}
	}
}

// enter adds a node. If a node with the same rank has come before, its launcher was started again, and the earlier
// connection is closed.
func (g *Gathering) enter(n *Node) {
	g.mu.Lock()
	before, late := g.here[n.Rank], g.closed
	if !late {
		g.here[n.Rank] = n
	}
	g.mu.Unlock()
	if late {
		n.Conn.Close()
		return
	}
	if before != nil {
		g.say(fmt.Sprintf("node %d has come again, from host %s; before it was host %s", n.Rank, n.Host, before.Host))
		go g.ends(before.Conn)
	}
	select {
	case g.change <- struct{}{}:
	default:
	}
}

// Names gives the nodes different host names, in their order: a node's own name, with its rank if another node has the
// same name.
func Names(all []Node) []string {
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Host
		if slices.ContainsFunc(all, func(o Node) bool { return o.Rank != n.Rank && o.Host == n.Host }) {
			names[i] = fmt.Sprintf("%s-node-%d", n.Host, n.Rank)
		}
	}
	return names
}
