package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// proofTimeout is how long a connection may take to prove itself.
const proofTimeout = 10 * time.Second

// maxStrangers is the most connections that have not proved themselves, in addition to one for each node.
const maxStrangers = 64

// maxLine is the most bytes of a line of the conversation.
const maxLine = 4 << 10

// hello is what a node says about itself, as part of its proof.
type hello struct {
	Version     int
	Count, Rank int
	Elastic     bool
	ID          string
	Host        string
	Slots       int
}

// helloVersion changes whenever the conversation changes.
const helloVersion = 3

// verdict is node 0's answer, a line of JSON.
type verdict struct {
	Refused string `json:",omitempty"` // why the node cannot take part
	Other   bool   `json:",omitempty"` // because it belongs to another job
}

// keepAlive configures the probes that notice the loss of a node or its network.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// door lets nodes in at node 0: it makes them prove the secret, and refuses nodes that cannot take part.
type door struct {
	place       Place
	key         []byte
	enter       func(n *Node) // gets an admitted node, on some goroutine
	lobby       *auth.Lobby
	knocks      *auth.Knocks
	say         func(text string)
	listener    net.Listener
	uncertified atomic.Pointer[error] // why the last node was refused whose certificate did not do; nil: none was
}

func newDoor(l net.Listener, place Place, key []byte, enter func(*Node), say func(text string)) *door {
	return &door{place: place, key: key, enter: enter, lobby: auth.NewLobby(maxStrangers + place.Count),
		knocks: auth.NewKnocks(say), say: say, listener: l}
}

// shut lets no more nodes in.
func (d *door) shut() {
	d.listener.Close()
	d.lobby.Close()
	d.knocks.Close()
}

func (d *door) serve() {
	for {
		conn, err := d.listener.Accept()
		switch {
		case err == nil:
			d.lobby.Enter(conn)
			go d.attend(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // descriptors have run out, for instance: the pause keeps the loop from spinning
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// attend lets a node in, or turns its connection away.
func (d *door) attend(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(proofTimeout))
	raw, err := auth.Accept(conn, d.key)
	stayed := d.lobby.Leave(conn)
	if err != nil {
		d.knocks.Note(conn, err)
	}
	if err != nil || !stayed {
		conn.Close()
		return
	}
	sealed, err := d.place.Certificates.Seal(conn, d.key, false)
	if err != nil {
		d.knocks.Note(conn, err)
		if errors.Is(err, auth.ErrCertificate) {
			d.uncertified.Store(&err)
		}
		conn.Close()
		return
	}
	n, refused := d.admit(raw, sealed)
	line, err := json.Marshal(refused)
	if err == nil {
		_, err = sealed.Write(append(line, '\n'))
	}
	if err != nil || refused.Refused != "" {
		sealed.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	watch(conn)
	d.enter(n)
}

// watch makes the kernel notice the loss of the other end.
func watch(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(keepAlive)
	}
}

// admit reads what a node says about itself, and returns node 0's answer.
func (d *door) admit(raw []byte, conn *auth.Sealed) (*Node, verdict) {
	var h hello
	if err := json.Unmarshal(raw, &h); err != nil || h.Version != helloVersion {
		return nil, verdict{Refused: "node 0 runs another version of gorovod: install the same one on all nodes"}
	}
	if h.ID != d.place.ID {
		return nil, verdict{Other: true, Refused: fmt.Sprintf("node 0 belongs to another job: its --rdzv-id is %s, "+
			"and this node's is %s. Give each job a --master-addr of its own", strconv.Quote(d.place.ID),
			strconv.Quote(h.ID))}
	}
	if text := d.unfit(h); text != "" {
		return nil, verdict{Refused: text}
	}
	return &Node{Rank: h.Rank, Host: h.Host, Slots: h.Slots, Conn: conn}, verdict{}
}

// unfit says why a node cannot take part; empty if it can.
func (d *door) unfit(h hello) string {
	switch {
	case h.Elastic != d.place.Elastic:
		return "the nodes come and go for node 0 or for this node, and not for both: give all the same --nnodes"
	case h.Count != d.place.Count && !h.Elastic:
		return fmt.Sprintf("node 0 was told that there are %d nodes, and node %d that there are %d: give all the "+
			"same --nnodes", d.place.Count, h.Rank, h.Count)
	case h.Rank == 0 && h.Elastic:
		return "this calls itself node 0, and another is node 0 already: give each node a --node-rank of its own"
	case (h.Rank < 1 || h.Rank >= d.place.Count) && !h.Elastic:
		return fmt.Sprintf("the nodes besides node 0 are 1 to %d, and this calls itself node %d: give each node "+
			"a --node-rank of its own", d.place.Count-1, h.Rank)
	case h.Slots < 1 || h.Slots > maxSlots || h.Host == "" || len(h.Host) > 253:
		return "node 0 does not understand what this node says of itself"
	}
	return ""
}

// readVerdict reads node 0's answer, and no byte beyond it.
func readVerdict(r io.Reader) (v verdict, err error) {
	var line []byte
	for c := make([]byte, 1); len(line) < maxLine; line = append(line, c[0]) {
		if _, err := io.ReadFull(r, c); err != nil {
			return v, err
		}
		if c[0] == '\n' {
			return v, json.Unmarshal(line, &v)
		}
	}
	return v, errors.New("its answer is too long")
}
