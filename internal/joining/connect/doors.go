package connect

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/gorovod/gorovod/internal/base/reach"
)

// door is a listener of this rank for one purpose, with the ways to the other ranks' listeners for that purpose.
type door struct {
	net.Listener
	*ways
}

// openDoors opens n doors, and exchanges their addresses with all ranks; each must open n doors, too. One exchange
// serves all doors, because every rank reads the addresses of every other rank.
func (c *connector) openDoors(ctx context.Context, purpose string, n int) (doors []door, err error) {
	defer func() {
		if err != nil {
			for _, d := range doors {
				d.Close()
			}
		}
	}()
	var mine notice
	for range n {
		l, own, err := c.listen()
		if err != nil {
			return doors, err
		}
		doors = append(doors, door{l, nil})
		mine.add(own)
	}
	value, err := json.Marshal(mine)
	if err != nil {
		return doors, err
	}
	values, err := c.Session.Exchange(ctx, purpose, value)
	if err != nil {
		return doors, err
	}
	own, unknown := reach.OnHost()
	if unknown != nil {
		c.Log.Debug("addresses are tried in the order in which they are offered", "reason", unknown)
	}
	for i := range doors {
		doors[i].ways = c.toward(values, i, own)
	}
	return doors, nil
}

// notice lists the addresses of a rank's doors, in their order.
type notice []doorNotice

// doorNotice has Addresses. If a door has the addresses of the one before, it has only its Port.
type doorNotice struct {
	Port      uint16          `json:"p,omitempty"`
	Addresses []reach.Address `json:"o,omitempty"`
}

// add adds a door with these addresses, all of which have one port.
func (n *notice) add(addresses []reach.Address) {
	if len(*n) > 0 && len(addresses) > 0 {
		port := portOf(addresses[0].Addr)
		before, err := n.addresses(len(*n) - 1)
		if err == nil && port != 0 && slices.Equal(withPort(before, port), addresses) {
			*n = append(*n, doorNotice{Port: port})
			return
		}
	}
	*n = append(*n, doorNotice{Addresses: addresses})
}

var errNotice = errors.New("it does not tell of that door")

// addresses returns the addresses of a door.
func (n notice) addresses(door int) ([]reach.Address, error) {
	switch {
	case door >= len(n):
		return nil, errNotice
	case n[door].Port == 0:
		return n[door].Addresses, nil
	case door == 0:
		return nil, errNotice
	}
	before, err := n.addresses(door - 1)
	return withPort(before, n[door].Port), err
}

func readNotice(value []byte, door int) ([]reach.Address, error) {
	var n notice
	if err := json.Unmarshal(value, &n); err != nil {
		return nil, err
	}
	return n.addresses(door)
}

func portOf(addr string) uint16 {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0
	}
	return at.Port()
}

// withPort returns the same addresses with another port. It leaves out addresses that it cannot parse.
func withPort(addresses []reach.Address, port uint16) []reach.Address {
	var all []reach.Address
	for _, a := range addresses {
		if at, err := netip.ParseAddrPort(a.Addr); err == nil {
			a.Addr = netip.AddrPortFrom(at.Addr(), port).String()
			all = append(all, a)
		}
	}
	return all
}

// ways are the ways from this rank to the others for one purpose. It reads and sorts a rank's addresses on first use,
// because most are never used.
type ways struct {
	*connector
	notices [][]byte // by rank
	door    int      // index of the door in the notices
	own     []reach.Own

	mu      sync.Mutex
	ordered map[int][]reach.Way
}

// toward returns the ways to one door of the ranks that have sent these notices.
func (c *connector) toward(notices [][]byte, door int, own []reach.Own) *ways {
	return &ways{connector: c, notices: notices, door: door, own: own, ordered: make(map[int][]reach.Way)}
}

// to returns the ways to a rank, the best first.
func (v *ways) to(rank int) []reach.Way {
	v.mu.Lock()
	defer v.mu.Unlock()
	ordered, ok := v.ordered[rank]
	if !ok {
		near := v.Members[rank].Machine.Network == v.Members[v.Place.Rank].Machine.Network
		addresses, err := readNotice(v.notices[rank], v.door)
		if err != nil {
			v.Log.Warn("cannot read the addresses that a rank has sent", "rank", rank, "error", err)
		}
		ordered = reach.Order(addresses, v.own, near)
		v.ordered[rank] = ordered
	}
	return ordered
}

func (v *ways) addrs(rank int) []string { return reach.Addrs(v.to(rank)) }

// paths returns how many of the first addresses may share the connections to a rank.
func (v *ways) paths(rank int) int { return reach.Equal(v.to(rank)) }

// reached logs which way to a rank was taken.
func (v *ways) reached(rank, route int) {
	ways := v.to(rank)
	v.Log.Debug("connected to "+v.Members.Describe(rank), "address", ways[route].Addr, "because", ways[route].Why, "of",
		len(ways))
}
