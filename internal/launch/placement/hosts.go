// Package placement reads which hosts a job has, with how many slots, gives each rank its place, and makes the
// environment of a rank there. It knows which names mean this host. It starts nothing.
package placement

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/base/printable"
)

// Host is a name with a number of slots, from the user. 0 slots: the host has none now, because it is drained.
type Host struct {
	Name  string
	Slots int
}

// Slot is one rank's place in the world. Cross ranks count the hosts that have a slot with the same local rank.
type Slot struct {
	Host                 string
	Rank, Size           int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
}

// MaxSlots keeps sums of slots far from overflow.
const MaxSlots = 1 << 20

// HostEntry matches a name or an address with slots. ssh would read a name that begins with a dash as an option.
var HostEntry = lazyregexp.New(`^(?:\w[\w.-]*|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]):[0-9]+$`)

// ParseHosts parses host1:2,host2:4. It leaves out hosts with 0 slots.
func ParseHosts(text string) ([]Host, error) {
	var hosts []Host
	for _, entry := range strings.Split(text, ",") {
		if !HostEntry().MatchString(entry) {
			advice := ""
			if strings.Contains(entry, "@") {
				advice = "; another user is named in ~/.ssh/config (User)"
			}
			//lint:ignore ST1005 Horovod's message begins so
			return nil, fmt.Errorf("Invalid host input %q in -H %s: each entry must look like host:slots, for "+
				"instance localhost:2%s", printable.Short(entry), printable.Short(text), advice)
		}
		colon := strings.LastIndexByte(entry, ':')
		h, err := NewHost(entry[:colon], entry[colon+1:])
		if err != nil {
			return nil, fmt.Errorf("-H %s: %w", printable.Short(text), err)
		}
		hosts = append(hosts, h)
	}
	if hosts = withSlots(hosts); len(hosts) == 0 {
		return nil, fmt.Errorf("-H %s: no host has a slot: 0 slots mean that a host is not to be used now",
			printable.Short(text))
	}
	return hosts, nil
}

// ParseHostfile parses lines like "host slots=4", or "host:4" as MPICH has them. Blank lines and comments (#)
// are skipped, and so is the byte order mark that some editors put at a file's beginning. Hosts with 0 slots are left
// out.
func ParseHostfile(path, text string) ([]Host, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	var hosts []Host
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		slots, ok := "", false
		switch {
		case len(fields) == 2:
			slots, ok = strings.CutPrefix(fields[1], "slots=")
		case HostEntry().MatchString(fields[0]):
			colon := strings.LastIndexByte(fields[0], ':')
			fields[0], slots, ok = fields[0][:colon], fields[0][colon+1:], true
		}
		if strings.Count(fields[0], ":") > 1 && fields[0][0] != '[' {
			fields[0] = "[" + fields[0] + "]"
		}
		if !ok || !HostEntry().MatchString(fields[0]+":"+slots) {
			return nil, fmt.Errorf("%s:%d: %q does not look like: host slots=2", path, i+1,
				printable.Short(strings.TrimSpace(line)))
		}
		h, err := NewHost(fields[0], slots)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s names no hosts", path)
	}
	if hosts = withSlots(hosts); len(hosts) == 0 {
		return nil, fmt.Errorf("%s names no host with a slot: 0 slots mean that a host is not to be used now", path)
	}
	return hosts, nil
}

// withSlots leaves out hosts with 0 slots.
func withSlots(hosts []Host) []Host {
	return slices.DeleteFunc(hosts, func(h Host) bool { return h.Slots == 0 })
}

func NewHost(name, slots string) (Host, error) {
	name = strings.Trim(name, "[]")
	n, err := strconv.Atoi(slots)
	if err != nil || n < 0 || n > MaxSlots {
		return Host{}, fmt.Errorf("%s slots on host %s: a number from 0 to %d is needed", printable.Short(slots),
			printable.Short(name), MaxSlots)
	}
	return Host{name, n}, nil
}

// Assign gives np ranks their places: the hosts in the given order, all slots of a host one after the other. Entries
// with one name are one host.
func Assign(hosts []Host, np int) ([]Slot, error) {
	total := 0
	index := map[string]int{}
	var merged []Host
	for _, h := range hosts {
		total = min(total+h.Slots, MaxSlots)
		if i, ok := index[h.Name]; ok {
			merged[i].Slots = min(merged[i].Slots+h.Slots, MaxSlots)
			continue
		}
		index[h.Name] = len(merged)
		merged = append(merged, h)
	}
	if total < np {
		return nil, TooFewSlots(merged, np, total)
	}
	var slots []Slot
	crossSize := map[int]int{} // by local rank
	for _, h := range merged {
		n := min(h.Slots, np-len(slots))
		for local := range n {
			slots = append(slots, Slot{Host: h.Name, Rank: len(slots), Size: np, LocalRank: local, LocalSize: n,
				CrossRank: crossSize[local]})
			crossSize[local]++
		}
	}
	for i := range slots {
		slots[i].CrossSize = crossSize[slots[i].LocalRank]
	}
	return slots, nil
}

// TooFewSlots is the error for more processes than slots.
func TooFewSlots(hosts []Host, np, total int) error {
	var list []string
	for _, h := range hosts[:min(len(hosts), 8)] {
		name := h.Name
		if strings.Contains(name, ":") {
			name = "[" + name + "]"
		}
		list = append(list, fmt.Sprintf("%s:%d", name, h.Slots))
	}
	if more := len(hosts) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more hosts", more))
	}
	slots := "slots"
	if total == 1 {
		slots = "slot"
	}
	return fmt.Errorf("-np %d, but the hosts have only %d %s (%s): name more hosts, or give them more slots", np,
		total, slots, strings.Join(list, ", "))
}

// lookupTimeout is how long it may take to find out whether a name means this host.
const lookupTimeout = 5 * time.Second

// Locals finds out which hosts are this one.
func Locals(hosts []Host) map[string]bool {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := map[string]bool{}
	own := ThisHost()
	room := make(chan struct{}, 64)
	for _, h := range hosts {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			local := own.mean(h.Name)
			mu.Lock()
			found[h.Name] = local
			mu.Unlock()
		})
	}
	wg.Wait()
	return found
}

// IsLocal reports whether one name means this host.
func IsLocal(name string) bool { return ThisHost().mean(name) }

// HostNames are a host's names and addresses.
type HostNames struct {
	names []string
	addrs []net.Addr
}

// ThisHost are the names and addresses of this host.
func ThisHost() (s HostNames) {
	s.names = []string{"localhost"}
	if own, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(own, ".")
		s.names = append(s.names, own, short)
	}
	s.addrs, _ = net.InterfaceAddrs()
	return s
}

// mean reports whether name is this host. It may have to ask the name service.
func (s HostNames) mean(name string) bool {
	if slices.ContainsFunc(s.names, func(own string) bool { return strings.EqualFold(name, own) }) {
		return true
	}
	addrs := []string{name}
	if net.ParseIP(name) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		var err error
		if addrs, err = net.DefaultResolver.LookupHost(ctx, name); err != nil {
			return false
		}
	}
	for _, a := range addrs {
		ip := net.ParseIP(a)
		if ip.IsLoopback() {
			return true
		}
		for _, own := range s.addrs {
			if n, ok := own.(*net.IPNet); ok && n.IP.Equal(ip) {
				return true
			}
		}
	}
	return false
}

// Has reports whether a host's name is one of this host, without asking the name service.
func (s HostNames) Has(host string) bool {
	return slices.ContainsFunc(s.names, func(own string) bool { return strings.EqualFold(host, own) })
}
