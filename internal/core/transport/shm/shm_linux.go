// Package shm is the transport.Network of ranks on one host: of all ranks of the world, or, under package hosts, of
// some of them. Their boards, staging buffers, counters and bells lie in one memfd, the segment, which the first rank
// makes and hands to the others over an abstract unix socket, after both ends have proved that they know the job's
// secret. No file system is involved and nothing is left after a crash.
//
// Inside this package ranks are numbered by their places on the host; lanes'
// members, errors and Died speak of world ranks.
//
// A rank's driver polls, and sleeps on a futex in the segment. Ringing a driver that is awake costs one load. The
// package notices a peer's death by pidfd and reports it. The owner decides what follows.
package shm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// Config describes one rank's part in one generation of the world. All but Rank,
// Cores, Staged, HugePages, Describe, Died and TrackFD must be the same on all ranks of the host.
type Config struct {
	Rank, Size int           // this rank's place among those of this host, and their number
	Ranks      []int         // their ranks in the world, ascending; nil: the places are the ranks
	Key        []byte        // the job's secret
	Job        string        // tells jobs apart, in particular where Key is empty
	Generation uint64        // of the world; another generation's ranks cannot attach
	Timeout    time.Duration // for Open and for each OpenLane; 0 means 30 s
	Cards      int           // capacity of each lane's board
	BoardBytes int           // room for the boards of a Part; 0: as much as a lane's own board needs
	Alarm      bool          // the bell is a transport.Alarm, at the cost of a descriptor for each rank
	Cores      int           // cores that the ranks share; 0: enough for all
	Staged     bool          // this rank neither copies from the others' own memory nor lets them copy from its own
	HugePages  bool          // memory of this rank that others copy again and again may be moved into huge pages
	// Describe names a rank of the world for people; nil: "rank 3".
	Describe func(rank int) string
	// Died is called once for each peer whose process has ended, on a goroutine of the network; it may be nil. It must
	// not call Close.
	Died func(rank, pid int, exit transport.Exit)
	// TrackFD is called with each descriptor that is kept open after Open, when it
	// has been opened and before it is closed; may be nil.
	TrackFD func(fd int, open bool)
}

const defaultTimeout = 30 * time.Second

// maxRanks bounds the segment's tables; it is far beyond the cores of any host.
const maxRanks = 4096

func (c *Config) check() error {
	switch {
	case c.Size < 1 || c.Size > maxRanks:
		return fmt.Errorf("shm: %d ranks on this host, want 1 to %d", c.Size, maxRanks)
	case c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("shm: rank %d of %d", c.Rank, c.Size)
	case c.Cards < 1:
		return fmt.Errorf("shm: %d cards, want at least 1", c.Cards)
	case len(c.Key) == 0 && c.Job == "":
		return errors.New("shm: neither a key nor a job name")
	}
	if c.Ranks == nil {
		for r := range c.Size {
			c.Ranks = append(c.Ranks, r)
		}
	}
	if len(c.Ranks) != c.Size || !slices.IsSorted(c.Ranks) {
		return fmt.Errorf("shm: the ranks %v of a host of %d", c.Ranks, c.Size)
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Describe == nil {
		c.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if c.Died == nil {
		c.Died = func(int, int, transport.Exit) {}
	}
	if c.TrackFD == nil {
		c.TrackFD = func(int, bool) {}
	}
	return nil
}

// world is the world rank of a place.
func (c *Config) world(place int) int {
	if c.Ranks == nil {
		return place
	}
	return c.Ranks[place]
}

var errClosed = errors.New("shm: the network is closed")

// Network is a rank's attachment to the segment. Name, Bell, Err, Abort and Close may be called at any time, also after
// Close, and the bell may be used for ever. A lane's Mark and Post may race with Close. The driver calls the lane's
// other methods, none of them after Close.
type Network struct {
	cfg      Config
	head     *header
	seg      segment // the lanes; unmapped by Close
	bell     transport.Bell
	token    *copyToken // nil: nobody copies from this rank's memory
	hugeSize uintptr    // see hugePages
	seen     copyToken  // a copy of another rank's token, see canCopy
	err      atomic.Pointer[error]
	shut     atomic.Bool // Close has been called: this rank can no longer abort the others
	fenced   sync.Once   // for fence, which needs the watch, so it runs before watch.stop

	watch watch

	// opening is held while a lane opens, which may take until the timeout. It is locked before mu. So nobody holds mu,
	// which the driver locks, for long.
	opening sync.Mutex
	mu      sync.Mutex // protects the fields below
	lanes   [MaxLanes]openLane
	closed  bool
}

// Open attaches to the segment and returns when all ranks have. ctx and the timeout bound it. If a rank cannot attach,
// Open fails on all ranks at once, with the same error: it names that rank, or the ranks that are missing.
func Open(ctx context.Context, c Config) (*Network, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	n := &Network{cfg: c}
	if err := n.join(ctx); err != nil {
		n.Close()
		return nil, fmt.Errorf("shared memory of %d ranks: %w", c.Size, err)
	}
	return n, nil
}

// Name is "shm".
func (n *Network) Name() string { return "shm" }

// Bell is this rank's bell.
func (n *Network) Bell() transport.Bell { return n.bell }

// Err is the cause of the first abort, by any rank; nil while there is none.
func (n *Network) Err() error {
	if err := n.err.Load(); err != nil {
		return *err
	}
	if n.head == nil || !n.head.aborted() {
		return nil
	}
	n.latch(n.head.abortCause())
	return *n.err.Load()
}

// Abort makes cause the network's error on every rank, unless there is one
// already, and rings all bells.
func (n *Network) Abort(cause error) {
	if n.head == nil || n.shut.Load() {
		n.latch(cause)
		return
	}
	origin, text := n.cfg.world(n.cfg.Rank), cause.Error()
	if told := (*transport.Report)(nil); errors.As(cause, &told) {
		origin, text = told.Rank, told.Text
	}
	if n.head.abort(origin, text) || !n.head.aborted() {
		n.latch(cause)
	} else {
		n.latch(n.head.abortCause())
	}
	for r := range n.cfg.Size {
		n.head.ring(r)
	}
}

// Verify implements transport.Verified.
func (n *Network) Verify() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	for id := range n.lanes {
		p := n.lanes[id].part
		if p == nil {
			continue
		}
		if err := p.verify(n.lanes[id].board != nil); err != nil {
			return fmt.Errorf("lane %d: %w", id, err)
		}
	}
	return nil
}

// verify checks the boards and the staging. alone: this member has Board values of its own; otherwise the host's leader
// acts for others on them, too.
func (p *Part) verify(alone bool) error {
	for _, b := range p.Boards {
		verify := b.Check
		if alone {
			verify = b.Verify
		}
		if err := verify(p.me); err != nil {
			return err
		}
	}
	return p.data.verify()
}

func (n *Network) latch(err error) { n.err.CompareAndSwap(nil, &err) }

// Close ends the watching of peers, unmaps the lanes and closes the descriptors. It tells the other ranks only that
// they may no longer write to this rank's memory.
func (n *Network) Close() error {
	n.shut.Store(true)
	n.latch(errClosed)
	var fenced error
	n.fenced.Do(func() { fenced = n.fence() })
	n.watch.stop()
	n.opening.Lock() // a lane that is opening sees errClosed at its next look
	defer n.opening.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	for i := range n.lanes {
		if l := n.lanes[i].board; l != nil {
			l.quiesce()
		}
		n.lanes[i].open, n.lanes[i].board, n.lanes[i].part = false, nil, nil
	}
	if n.head != nil && n.head.events != nil {
		n.head.events.close()
	}
	return errors.Join(fenced, n.seg.close())
}

var _ transport.Network = (*Network)(nil)

// crowded reports that the ranks outnumber the cores.
func (n *Network) crowded() bool { return n.cfg.Cores > 0 && n.cfg.Size > n.cfg.Cores }

// checkMembers validates the arguments of OpenLane. It returns the members' places on this host, and this rank's index
// among them.
func (n *Network) checkMembers(id int, members []int) (places []int, me int, err error) {
	if id < 0 || id >= MaxLanes {
		return nil, 0, fmt.Errorf("shm: lane %d, want 0 to %d", id, MaxLanes-1)
	}
	me = -1
	for i, m := range members {
		p, ok := slices.BinarySearch(n.cfg.Ranks, m)
		if !ok || i > 0 && m <= members[i-1] {
			return nil, 0, fmt.Errorf("shm: lane %d: members %v are not ascending ranks of this host, which are %v", id,
				members, n.cfg.Ranks)
		}
		if p == n.cfg.Rank {
			me = i
		}
		places = append(places, p)
	}
	if me < 0 {
		return nil, 0, fmt.Errorf("shm: lane %d: rank %d is not among the members %v", id,
			n.cfg.world(n.cfg.Rank), members)
	}
	return places, me, nil
}

func boardConfig(members, cards int) board.Config { return board.Standard(members, members, cards) }
