package job

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// fleet are the nodes of an elastic job in which each node has a launcher. The nodes come to node 0, where the driver
// is, and leave when they like. The driver knows each visit by a name of its own, so what happened to a node does not
// count against its replacement, whatever the replacement calls itself.
type fleet struct {
	job   *elasticJob
	place nodes.Place
	self  nodes.Node // node 0
	key   []byte
	need  int // how many slots the job needs to start; 0: -np or --min-np says it, and no number of nodes

	listener  net.Listener
	reception *nodes.Reception // nil before open

	mu     sync.Mutex
	used   map[string]int // how many nodes have had a name
	here   []*visitor     // in the order in which they came
	closed bool
}

// visitor is a node that has come.
type visitor struct {
	nodes.Node
	name  string // the driver's name for the node
	line  *remote.Line
	going bool // it is to leave
}

// newFleet makes the fleet of a job whose nodes come to l, which it owns.
func newFleet(e *elasticJob, place nodes.Place, self nodes.Node, key []byte, l net.Listener) *fleet {
	return &fleet{job: e, place: place, self: self, key: key, listener: l, used: map[string]int{self.Host: 1}}
}

// open lets nodes come. The driver must exist by then.
func (f *fleet) open() {
	if f.listener != nil {
		f.reception = nodes.Receive(f.listener, f.place, f.key, f.came, func(text string) { f.job.say("%s", text) })
	}
}

// close lets no more nodes come.
func (f *fleet) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	if f.reception != nil {
		f.reception.Close()
	}
}

// came takes a node in, and stays with it until it is gone.
func (f *fleet) came(n nodes.Node) {
	switch err := f.job.meetOthers(); {
	case errors.Is(err, errEnding):
		n.Conn.Close()
		return
	case err != nil:
		f.job.sayError("node %s cannot take part: %v", label(n), err)
		remote.TurnAway(n.Conn, fmt.Sprintf("this node cannot take part, since node 0 says: %v", err))
		return
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		n.Conn.Close()
		return
	}
	v := &visitor{Node: n, name: f.unused(n.Host)}
	v.line = remote.NodeLine(n, v.name)
	before := f.same(n)
	if before != nil {
		f.here = slices.DeleteFunc(f.here, func(o *visitor) bool { return o == before })
	}
	f.here = append(f.here, v)
	short := f.short()
	f.mu.Unlock()
	if before != nil {
		f.job.say("node %s has come again, as host %s: host %s is taken for lost", label(n), v.name, before.name)
		f.job.replaced(before.name)
	}
	f.job.tell("%s has come, with %d slots", v.name, n.Slots)
	if short != "" {
		f.job.say("%s", short)
	}
	crew, err := f.job.remote(v.name)
	if err != nil { // remote has told the user
		f.drop(v)
		return
	}
	f.mu.Lock()
	v.going = len(crew.Leaves) > 0 // it got its notice before it had taken the job
	f.mu.Unlock()
	f.offer()
	select {
	case why := <-crew.Leaves:
		f.job.say("host %s leaves the job: %s", v.name, why)
		f.mu.Lock()
		v.going = true
		f.mu.Unlock()
		f.offer()
		f.job.driver.Vacated(v.name, crew.Close)
		<-crew.Lost()
	case <-crew.Lost():
		f.lost(v, crew.Err())
	}
	f.drop(v)
}

// lost tells the user and the driver of the loss of a node, unless the job is over or another node has its place. The
// driver must hear of it before drop: it would take the node for one that leaves in order.
func (f *fleet) lost(v *visitor, why error) {
	f.mu.Lock()
	expected := f.closed || !slices.Contains(f.here, v)
	f.mu.Unlock()
	if expected {
		return
	}
	text := fmt.Sprint(why)
	if h := (*remote.HostError)(nil); errors.As(why, &h) {
		text = h.What
	}
	f.job.say("host %s is lost: %s", v.name, text)
	f.job.driver.HostLost(v.name)
}

// unused is a name for a node that calls itself host. f.mu is held.
func (f *fleet) unused(host string) string {
	f.used[host]++
	if n := f.used[host]; n > 1 {
		return fmt.Sprintf("%s/%d", host, n)
	}
	return host
}

// same is the node here that has the number of n or, if n has no number, the name of n; nil if there is none. f.mu is
// held.
func (f *fleet) same(n nodes.Node) *visitor {
	for _, v := range f.here {
		if v.Rank == n.Rank && (n.Rank >= 0 || v.Host == n.Host) {
			return v
		}
	}
	return nil
}

// short says that as many nodes are here as the job needs, and that they have too few slots; empty if that is not so.
// f.mu is held.
func (f *fleet) short() string {
	total, list := f.self.Slots, []string{fmt.Sprintf("%s %d", f.self.Host, f.self.Slots)}
	for _, v := range f.here {
		total += v.Slots
		list = append(list, fmt.Sprintf("%s %d", v.name, v.Slots))
	}
	if len(list) < f.place.Least || total >= f.need {
		return ""
	}
	more := ""
	if len(list) > mostListed {
		list, more = list[:mostListed], " and so on"
	}
	return fmt.Sprintf("%d nodes are here, with %d slots (%s%s), and the job needs %d: a number of nodes stands for "+
		"so many times node 0's slots. Give each node as many (--nproc-per-node), or say how many processes are "+
		"enough (--min-np)", 1+len(f.here), total, strings.Join(list, ", "), more, f.need)
}

// mostListed is the most nodes that a message lists.
const mostListed = 8

// label is what a user calls a node.
func label(n nodes.Node) string {
	if n.Rank < 0 {
		return n.Host
	}
	return fmt.Sprint(n.Rank)
}

// drop forgets a node.
func (f *fleet) drop(v *visitor) {
	v.line.End()
	f.mu.Lock()
	f.here = slices.DeleteFunc(f.here, func(o *visitor) bool { return o == v })
	f.mu.Unlock()
	f.offer()
}

// offer tells the driver which nodes there are.
func (f *fleet) offer() {
	f.mu.Lock()
	defer f.mu.Unlock() // offers reach the driver in the order in which they are made
	hosts := []membership.Host{{Name: f.self.Host, Slots: f.self.Slots}}
	for _, v := range f.here {
		if !v.going {
			hosts = append(hosts, membership.Host{Name: v.name, Slots: v.Slots})
		}
	}
	f.job.driver.Offer(hosts)
}

// openLine returns the connection to a node, for the job's agents.
func (f *fleet) openLine(name string) (*remote.Line, error) {
	if v := f.visitor(name); v != nil {
		return v.line, nil
	}
	return nil, &remote.HostError{Host: name, What: "it has left the job"}
}

// slots is how many processes a node may run.
func (f *fleet) slots(name string) int {
	if v := f.visitor(name); v != nil {
		return v.Slots
	}
	return 1
}

func (f *fleet) visitor(name string) *visitor {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.here {
		if v.name == name {
			return v
		}
	}
	return nil
}

// remoteCrews are the crews of all other hosts that are connected.
func (e *elasticJob) remoteCrews() map[string]spawn.Crew {
	e.mu.Lock()
	defer e.mu.Unlock()
	crews := map[string]spawn.Crew{}
	for name, p := range e.crews {
		select {
		case <-p.ready:
			if p.crew != nil {
				crews[name] = p.crew
			}
		default:
		}
	}
	return crews
}

// replacedText tells a node why it is no longer part of the job.
const replacedText = "another node has come with this node's number or name, and has its place"

// replaced ends the crew of a host whose place another node has taken.
func (e *elasticJob) replaced(host string) {
	if c, ok := e.remoteCrews()[host].(*remote.Crew); ok {
		c.Refuse(replacedText)
		go c.Close()
	}
}
