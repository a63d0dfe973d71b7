package world

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// nicCache remembers the network interface of the last addresses, as asking for it takes system calls.
type nicCache struct {
	mu    sync.Mutex
	addrs []netip.Addr
	nic   feed.NIC
}

// of is the one interface that has all of these addresses of this host; empty if there is none.
func (c *nicCache) of(addrs []netip.Addr) feed.NIC {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(addrs, c.addrs) {
		c.addrs, c.nic = addrs, feed.NIC{}
		if name := nicName(addrs); name != "" {
			c.nic = feed.NIC{Name: name, Rate: nicRate("/sys/class/net", name)}
		}
	}
	return c.nic
}

// nicName is the name of the one interface that has all of these addresses.
func nicName(addrs []netip.Addr) (name string) {
	nics, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, addr := range addrs {
		i := slices.IndexFunc(nics, func(nic net.Interface) bool { return has(&nic, addr) })
		if i < 0 || name != "" && name != nics[i].Name {
			return ""
		}
		name = nics[i].Name
	}
	return name
}

// has reports whether an interface has an address, or is the loopback of all of its kind.
func has(nic *net.Interface, addr netip.Addr) bool {
	if addr.IsLoopback() {
		return nic.Flags&net.FlagLoopback != 0
	}
	theirs, _ := nic.Addrs()
	return slices.ContainsFunc(theirs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		return ok && ip.Unmap() == addr
	})
}

// nicRate is how many bits a second an interface can send, as the kernel says in the folder dir; 0 if it does not know.
// What virtual interfaces say is not believed: a veth says 10 Gbit/s, whatever is below it. A bond adds up what its
// devices say.
func nicRate(dir, name string) uint64 {
	at := filepath.Join(dir, name)
	_, device := os.Stat(filepath.Join(at, "device"))
	_, bond := os.Stat(filepath.Join(at, "bonding"))
	if device != nil && bond != nil {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(at, "speed")) // an error if the link is down
	if err != nil {
		return 0
	}
	megabits, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || megabits <= 0 || megabits == 1<<31-1 { // -1 stands for unknown
		return 0
	}
	return uint64(megabits) * 1e6
}
