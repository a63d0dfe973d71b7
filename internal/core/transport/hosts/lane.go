package hosts

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
	"github.com/gorovod/gorovod/internal/core/transport/tcp"
	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// OpenLane implements transport.Network.
func (n *Network) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	for _, m := range members {
		if m < 0 || m >= len(n.hosts) {
			return nil, fmt.Errorf("open lane %d: members %v are not ranks of a world of %d", id, members, len(n.hosts))
		}
	}
	n.mu.Lock()
	_, open := n.lanes[id]
	n.mu.Unlock()
	if open {
		return nil, fmt.Errorf("open lane %d: rank %d has opened it already", id, n.rank)
	}
	var lane *transport.Lane
	var p parts
	var err error
	if hosts := n.byHost(members); len(hosts) == 1 && n.local != nil {
		p.local = true
		lane, err = n.local.OpenLane(id, incarnation, members)
	} else {
		lane, p, err = n.openAcross(id, incarnation, members, hosts)
	}
	if err != nil {
		n.Abort(err) // the others would wait for this rank
		return nil, err
	}
	n.mu.Lock()
	n.lanes[id] = p
	n.mu.Unlock()
	return lane, nil
}

// openAcross opens a lane whose members are on several hosts, or on one host without a segment.
func (n *Network) openAcross(id int, incarnation uint32, members []int, hosts [][]int) (*transport.Lane, parts, error) {
	p := parts{tcp: true}
	own, host := n.onThisHost(members, hosts)
	local := tcp.Local{Hosts: hosts}
	var shared transport.Shared
	if len(own) > 1 {
		part, err := n.local.OpenPart(id, own, treeboard.UpConfig(hosts, host, n.cards, n.early),
			treeboard.DownConfig(hosts, host, n.cards, n.early))
		if err != nil {
			return nil, p, err
		}
		p.local, shared = true, part.Shared
		local.Up, local.Down, local.Ring = part.Boards[0], part.Boards[1], part.Ring
	}
	lane, err := n.tcp.OpenLaneOn(id, incarnation, members, local)
	if err != nil {
		if p.local {
			n.local.CloseLane(id)
		}
		return nil, p, err
	}
	lane.Shared, lane.Hosts = shared, hosts
	return lane, p, nil
}

// byHost lists the indices of members by host, the hosts in the order of their first members.
func (n *Network) byHost(members []int) [][]int {
	var hosts [][]int
	at := make(map[int]int)
	for m, rank := range members {
		i, ok := at[n.hosts[rank]]
		if !ok {
			i = len(hosts)
			at[n.hosts[rank]] = i
			hosts = append(hosts, nil)
		}
		hosts[i] = append(hosts[i], m)
	}
	return hosts
}

// onThisHost lists the members on this rank's host, and returns the index of that host in hosts. It returns none if
// this rank is not a member.
func (n *Network) onThisHost(members []int, hosts [][]int) (own []int, host int) {
	host = slices.IndexFunc(hosts, func(places []int) bool { return n.hosts[members[places[0]]] == n.hosts[n.rank] })
	if host >= 0 {
		for _, m := range hosts[host] {
			own = append(own, members[m])
		}
	}
	return own, host
}

// BoardBytes is the value for shm.Config.BoardBytes on a host of that many ranks. The largest lane has all these ranks,
// on the host at the root of the tree, with the most children. early is tcp.Config.Early.
func BoardBytes(ranks, cards, early int) int {
	tree := [][]int{make([]int, ranks)}
	for range treeboard.Arity {
		tree = append(tree, make([]int, 1))
	}
	return shm.BoardBytes(treeboard.UpConfig(tree, 0, cards, early), treeboard.DownConfig(tree, 0, cards, early))
}

// CloseLane implements transport.Network.
func (n *Network) CloseLane(id int) error {
	n.mu.Lock()
	p, ok := n.lanes[id]
	delete(n.lanes, id)
	n.mu.Unlock()
	if !ok {
		return fmt.Errorf("close lane %d: rank %d has not opened it", id, n.rank)
	}
	if p.tcp {
		if err := n.tcp.CloseLane(id); err != nil {
			return err
		}
	}
	if p.local {
		return n.local.CloseLane(id)
	}
	return nil
}
