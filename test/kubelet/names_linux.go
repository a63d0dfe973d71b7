package kubelet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/test/netns"
)

// names is a name server such as a cluster's. It knows the pods of a headless Service that are ready, and the Service
// itself. Like its model it remembers for a while what it has answered, be it that there is no such name.
type names struct {
	conn  net.PacketConn
	keeps time.Duration
	done  chan struct{}

	mu    sync.Mutex
	pods  map[string]netip.Addr
	known map[string]answer // by full name
}

// answer is what a name leads to.
type answer struct {
	exists bool
	addrs  []netip.Addr
	until  time.Time
}

func serveNames(h netns.Host, keeps time.Duration) (*names, error) {
	n := &names{keeps: keeps, done: make(chan struct{}), pods: map[string]netip.Addr{}, known: map[string]answer{}}
	var err error
	if there := h.Inside(func() {
		var ip netip.Addr
		if ip, err = netip.ParseAddr(h.Address); err == nil {
			n.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 53)))
		}
	}); there != nil {
		return nil, there
	}
	if err != nil {
		return nil, err
	}
	go n.serve()
	return n, nil
}

func (n *names) close() {
	n.conn.Close()
	<-n.done
}

func (n *names) serve() {
	defer close(n.done)
	for p := make([]byte, 1500); ; {
		size, from, err := n.conn.ReadFrom(p)
		if err != nil {
			return
		}
		if reply := n.reply(p[:size]); reply != nil {
			n.conn.WriteTo(reply, from)
		}
	}
}

// The parts of a message, as RFC 1035 has them.
const (
	headerSize  = 12
	typeA       = 1
	classIN     = 1
	noSuchName  = 3
	isReply     = 1 << 15
	isOurs      = 1 << 10 // authoritative
	isWanted    = 1 << 8  // recursion, by the client
	isThere     = 1 << 7  // recursion
	firstName   = 0xc000 | headerSize
	timeToLive  = 5 // seconds; no resolver of a container keeps an answer
	addressSize = 4
)

// reply answers a question; nil if p is none.
func (n *names) reply(p []byte) []byte {
	if len(p) < headerSize || binary.BigEndian.Uint16(p[4:]) != 1 {
		return nil
	}
	var labels []string
	rest := p[headerSize:]
	for {
		if len(rest) < 1 || rest[0] > 63 || len(rest) < 1+int(rest[0]) {
			return nil
		}
		size := int(rest[0])
		if size == 0 {
			rest = rest[1:]
			break
		}
		labels, rest = append(labels, string(rest[1:1+size])), rest[1+size:]
	}
	if len(rest) < 4 {
		return nil
	}
	kind := binary.BigEndian.Uint16(rest)
	a := n.ask(strings.ToLower(strings.Join(labels, ".")))
	flags := uint16(isReply | isOurs | isThere)
	flags |= binary.BigEndian.Uint16(p[2:]) & isWanted
	if !a.exists {
		flags |= noSuchName
	}
	if kind != typeA {
		a.addrs = nil
	}
	reply := append([]byte{}, p[:2]...)
	for _, word := range []uint16{flags, 1, uint16(len(a.addrs)), 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, word)
	}
	reply = append(reply, p[headerSize:len(p)-len(rest)+4]...)
	for _, addr := range a.addrs {
		for _, word := range []uint16{firstName, typeA, classIN, 0, timeToLive, addressSize} {
			reply = binary.BigEndian.AppendUint16(reply, word)
		}
		reply = append(reply, addr.AsSlice()...)
	}
	return reply
}

// ask looks a full name up.
func (n *names) ask(name string) answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, known := n.known[name]; known && time.Now().Before(a.until) {
		return a
	}
	a := answer{until: time.Now().Add(n.keeps)}
	if name == zone {
		a.exists = true
		for _, addr := range n.pods {
			a.addrs = append(a.addrs, addr)
		}
	} else if pod, inside := strings.CutSuffix(name, "."+zone); inside {
		var addr netip.Addr
		if addr, a.exists = n.pods[pod]; a.exists {
			a.addrs = []netip.Addr{addr}
		}
	}
	n.known[name] = a
	return a
}

func (n *names) set(pod, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[pod] = netip.MustParseAddr(address)
}

func (n *names) drop(pod, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[pod] == netip.MustParseAddr(address) {
		delete(n.pods, pod)
	}
}
