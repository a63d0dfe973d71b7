package treeboard

import (
	"errors"
	"fmt"
)

// tree is one member's view of the lane's tree of hosts: host 0 is the root, and
// the children of host h are Arity·h+1 to Arity·h+Arity.
type tree struct {
	host     int   // this member's
	local    int   // its index among the members of the host; 0 is the leader
	locals   []int // the host's members
	size     int   // of the lane
	hosts    int   // their number
	parent   int   // the leader of the parent host, -1 at the root
	children []child
	via      map[int]int // by leader: its index in children
	below    []int       // by member: the index of the child above it; -1 if no child is
}

// child is a host below this one.
type child struct {
	leader  int
	members []int // of the host and of all hosts below it, ascending
	hosts   []int // the host and all below it: each before those below it
}

func newTree(hosts [][]int, member int) (*tree, error) {
	t := &tree{host: -1, size: size(hosts), hosts: len(hosts), parent: -1, via: map[int]int{}}
	seen := make([]bool, t.size)
	for h, members := range hosts {
		if len(members) == 0 || h > 0 && members[0] <= hosts[h-1][0] {
			return nil, errors.New("hosts are not in the order of their first members")
		}
		for i, m := range members {
			if m < 0 || m >= t.size || seen[m] || i > 0 && m <= members[i-1] {
				return nil, fmt.Errorf("hosts %v: members are not 0 to %d, ascending in each", hosts, t.size-1)
			}
			seen[m] = true
			if m == member {
				t.host, t.local, t.locals = h, i, members
			}
		}
	}
	if t.host < 0 {
		return nil, fmt.Errorf("member %d of %d", member, t.size)
	}
	if t.host > 0 {
		t.parent = hosts[(t.host-1)/Arity][0]
	}
	if t.local == 0 {
		t.descend(hosts)
	}
	return t, nil
}

// descend fills in the children of a leader and the members below them.
func (t *tree) descend(hosts [][]int) {
	t.below = make([]int, t.size)
	for m := range t.below {
		t.below[m] = -1
	}
	for i, h := range childrenOf(t.host, len(hosts)) {
		t.via[hosts[h][0]] = i
		t.children = append(t.children, child{leader: hosts[h][0]})
		t.enter(hosts, h, i)
	}
	for m, c := range t.below {
		if c >= 0 {
			t.children[c].members = append(t.children[c].members, m)
		}
	}
}

// enter notes that host h and all below it are below child c.
func (t *tree) enter(hosts [][]int, h, c int) {
	t.children[c].hosts = append(t.children[c].hosts, h)
	for _, m := range hosts[h] {
		t.below[m] = c
	}
	for _, lower := range childrenOf(h, len(hosts)) {
		t.enter(hosts, lower, c)
	}
}

// subtree lists the members of a leader's host and of all hosts below it, ascending.
func (t *tree) subtree() []int {
	in := make([]bool, t.size)
	for _, m := range t.locals {
		in[m] = true
	}
	var members []int
	for m, c := range t.below {
		if in[m] || c >= 0 {
			members = append(members, m)
		}
	}
	return members
}

// childrenOf lists the hosts below host, in a tree of n hosts.
func childrenOf(host, n int) []int {
	var children []int
	for c := Arity*host + 1; c <= Arity*host+Arity && c < n; c++ {
		children = append(children, c)
	}
	return children
}

// size is the number of members on all hosts.
func size(hosts [][]int) int {
	n := 0
	for _, members := range hosts {
		n += len(members)
	}
	return n
}
