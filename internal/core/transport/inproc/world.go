// Package inproc is a world whose ranks live in one process: a transport for tests and simulation. Its ranks share one
// heap, so it needs no rendezvous, no sockets and no segment; everything else (lanes, boards, bells, aborts) is as in
// the transports between processes. It has no data races, so the race detector checks the protocols that run over it.
package inproc

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// Options shape a world. The zero value is a world over Comm with the defaults.
type Options struct {
	// Shared makes lanes offer transport.Shared over heap memory; otherwise they offer transport.Comm, whose cost grows
	// only with the pairs that communicate, and every rank is a host of its own.
	Shared bool
	// Hosts puts the ranks on simulated hosts: the ranks of each host, ascending, each rank once. A lane on several
	// hosts then offers Comm among all of its members and Shared among those of each host, a lane on one host Shared
	// alone. Not together with Shared.
	Hosts [][]int
	// ChunkBytes is the least size of one staging buffer (Shared); a lane rounds
	// it up to a multiple of 64×Size. Default 512 KiB.
	ChunkBytes int
	// Depth is the number of staging buffers of each member (Shared), at least 2.
	// Default 4.
	Depth int
	// Cards is the number of cache cards of a lane's board. Default 1024.
	Cards int
	// Early is the most bytes of an operand that travels with its mark between hosts; 0: none does.
	Early int
	// Combine makes the Combiner for the members of a lane below a leader, see treeboard.Config. Optional.
	Combine func(members []int) transport.Combiner
	// OnFrame is called for each frame that a board sends from one leader to another (world ranks), before the frame is
	// sent. It must be safe for concurrent calls. Optional.
	OnFrame func(from, to int, frame []byte)
}

func (o Options) withDefaults() Options {
	setDefault := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	setDefault(&o.ChunkBytes, 512<<10)
	setDefault(&o.Depth, 4)
	setDefault(&o.Cards, 1024)
	if o.ChunkBytes < 0 || o.Depth < 2 || o.Cards < 0 {
		panic(fmt.Sprintf("inproc: options %+v are out of range", o))
	}
	return o
}

// hosts is the number of each rank's host; nil without Options.Hosts.
func (o Options) hosts(size int) []int {
	if o.Hosts == nil {
		return nil
	}
	hosts := make([]int, size)
	listed := 0
	for h, ranks := range o.Hosts {
		for i, r := range ranks {
			if r < 0 || r >= size || hosts[r] != 0 || i > 0 && r <= ranks[i-1] {
				panic(fmt.Sprintf("inproc: hosts %v do not list each of %d ranks once, ascending", o.Hosts, size))
			}
			hosts[r] = h + 1
			listed++
		}
	}
	if listed != size || o.Shared {
		panic(fmt.Sprintf("inproc: hosts %v do not list each of %d ranks, or Shared is set", o.Hosts, size))
	}
	return hosts
}

// world is the state that all ranks share.
type world struct {
	size    int
	options Options
	bells   []*bell                  // by world rank
	hosts   []int                    // by world rank: the number of its host; nil without Options.Hosts
	wake    []atomic.Pointer[func()] // by world rank: the function that Attend was given
	closed  []atomic.Bool            // by world rank: its network has been closed
	cause   atomic.Pointer[causeOf]  // why the world was aborted

	mu    sync.Mutex
	lanes map[laneKey]*lane
}

// laneKey identifies a lane among those that have used one id.
type laneKey struct {
	id          int
	incarnation uint32
}

type causeOf struct{ err error }

// NewWorld makes a world of size ranks and returns each rank's network, by
// rank. It panics when an argument is out of range.
func NewWorld(size int, o Options) []transport.Network {
	if size < 1 {
		panic(fmt.Sprintf("inproc: a world of %d ranks", size))
	}
	w := &world{
		size:    size,
		options: o.withDefaults(),
		hosts:   o.hosts(size),
		bells:   make([]*bell, size),
		wake:    make([]atomic.Pointer[func()], size),
		closed:  make([]atomic.Bool, size),
		lanes:   make(map[laneKey]*lane),
	}
	networks := make([]transport.Network, size)
	for rank := range networks {
		w.bells[rank] = newBell()
		networks[rank] = &network{world: w, rank: rank, open: make(map[int]laneKey)}
	}
	return networks
}

// abort latches the first cause and wakes every rank.
func (w *world) abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted without a cause")
	}
	w.cause.CompareAndSwap(nil, &causeOf{cause})
	for _, b := range w.bells {
		b.Ring()
	}
}

// err is the cause, nil until the world is aborted.
func (w *world) err() error {
	if c := w.cause.Load(); c != nil {
		return c.err
	}
	return nil
}

// lane is the part of a lane that its members share.
type lane struct {
	members []int
	opened  []bool       // by member; guarded by world.mu
	bells   []*bell      // by member
	board   *board.Board // serves all members; nil on several hosts
	tree    *tree        // nil on one host
	comm    *exchange    // nil over Shared alone
	// By member: the memory that it shares with its host; nil for a member that shares none.
	shared []*sharedMember
	hosts  [][]int // as in transport.Lane
}

// network is one rank's transport.Network.
type network struct {
	world *world
	rank  int
	open  map[int]laneKey // by id; guarded by world.mu
}

var _ transport.Network = (*network)(nil)

func (n *network) Name() string         { return "inproc" }
func (n *network) Bell() transport.Bell { return n.world.bells[n.rank] }

func (n *network) Err() error { return n.world.err() }

// Abort tells every rank of the world. A rank that has closed its network has left the world, and can no longer abort
// it.
func (n *network) Abort(cause error) {
	if !n.world.closed[n.rank].Load() {
		n.world.abort(cause)
	}
}

// OpenLane does not wait for the other members: the first one makes the lane.
func (n *network) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed[n.rank].Load() {
		return nil, fmt.Errorf("open lane %d: rank %d has closed its network", id, n.rank)
	}
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	if _, open := n.open[id]; open {
		return nil, fmt.Errorf("open lane %d: rank %d has opened it already", id, n.rank)
	}
	key := laneKey{id, incarnation}
	l, ok := w.lanes[key]
	if !ok {
		var err error
		if l, err = w.newLane(members); err != nil {
			return nil, fmt.Errorf("open lane %d: %w", id, err)
		}
		w.lanes[key] = l
	}
	if !slices.Equal(l.members, members) {
		return nil, fmt.Errorf("open lane %d: rank %d names the members %v, another rank %v", id, n.rank, members,
			l.members)
	}
	member, ok := slices.BinarySearch(members, n.rank)
	if !ok {
		return nil, fmt.Errorf("open lane %d: rank %d is not among the members %v", id, n.rank, members)
	}
	if l.opened[member] {
		return nil, fmt.Errorf("open lane %d: rank %d has opened it already", id, n.rank)
	}
	l.opened[member] = true
	n.open[id] = key

	out := &transport.Lane{Hosts: l.hosts}
	if l.tree != nil {
		b := l.tree.boards[member]
		out.Board, out.Coordination, out.Poller = b, b.Coordination(), b.Poller()
	} else {
		b := &boardMember{network: n, lane: l, member: member}
		out.Board = b
		if member == coordinator {
			out.Coordination = &coordination{b}
		}
	}
	if s := l.shared[member]; s != nil {
		out.Shared = s
	}
	if l.comm != nil {
		out.Comm = &commMember{network: n, exchange: l.comm, rank: member}
	}
	return out, nil
}

func (w *world) newLane(members []int) (*lane, error) {
	if len(members) == 0 {
		return nil, errors.New("no members")
	}
	for i, m := range members {
		if m < 0 || m >= w.size || i > 0 && m <= members[i-1] {
			return nil, fmt.Errorf("members %v are not ascending ranks of a world of %d", members, w.size)
		}
	}
	l := &lane{
		members: slices.Clone(members),
		opened:  make([]bool, len(members)),
		bells:   make([]*bell, len(members)),
	}
	for i, m := range members {
		l.bells[i] = w.bells[m]
	}
	l.connect(w)
	var err error
	if l.comm != nil {
		hosts := l.hosts
		if hosts == nil {
			for m := range members {
				hosts = append(hosts, []int{m})
			}
		}
		l.tree, err = newTree(w, l.members, hosts, l.bells)
		return l, err
	}
	if l.board, err = board.NewPrivate(board.Standard(len(members), len(members), w.options.Cards)); err != nil {
		return nil, err
	}
	l.board.SetWake(func(member int) { l.bells[member].Ring() })
	l.board.SetStop(w.err)
	return l, nil
}

// connect makes the data paths of the members.
func (l *lane) connect(w *world) {
	l.shared = make([]*sharedMember, len(l.members))
	var hosts [][]int
	switch {
	case w.options.Shared:
		hosts = [][]int{make([]int, len(l.members))}
		for m := range l.members {
			hosts[0][m] = m
		}
	case w.hosts != nil:
		hosts = byHost(w.hosts, l.members)
	}
	if len(hosts) != 1 {
		l.comm, l.hosts = newExchange(w, l.members), hosts
	}
	for _, members := range hosts {
		if len(members) == 1 && l.comm != nil {
			continue
		}
		bells := make([]*bell, len(members))
		for i, m := range members {
			bells[i] = l.bells[m]
		}
		s := newStaging(bells, w.options.ChunkBytes, w.options.Depth)
		for i, m := range members {
			l.shared[m] = &sharedMember{staging: s, rank: i}
		}
	}
}

// byHost lists the indices of members by the host of each, the hosts in the
// order of their first members.
func byHost(hosts, members []int) [][]int {
	var lists [][]int
	at := make(map[int]int) // by host
	for m, rank := range members {
		i, ok := at[hosts[rank]]
		if !ok {
			i = len(lists)
			at[hosts[rank]] = i
			lists = append(lists, nil)
		}
		lists[i] = append(lists[i], m)
	}
	return lists
}

// CloseLane withdraws this member's posts. It does not abort for members that wait for this one, because they are about
// to close the lane, too.
func (n *network) CloseLane(id int) error {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	key, open := n.open[id]
	if !open {
		return fmt.Errorf("close lane %d: rank %d has not opened it", id, n.rank)
	}
	delete(n.open, id)
	l := w.lanes[key]
	if l.comm != nil {
		member, _ := slices.BinarySearch(l.members, n.rank)
		l.comm.withdraw(member, func(bool, int, int) {})
	}
	return nil
}

// Close withdraws this rank's posts. A member that waits for this rank would wait for ever, so Close then aborts the
// world.
func (n *network) Close() error {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed[n.rank].Swap(true) {
		return nil
	}
	for _, l := range w.lanes {
		if l.comm == nil {
			continue
		}
		if member, ok := slices.BinarySearch(l.members, n.rank); ok {
			l.comm.withdraw(member, l.comm.abortIf)
		}
	}
	return nil
}
