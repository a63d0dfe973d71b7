package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/transport"
)

// comm is a lane as its collectives see it.
type comm lane

var _ transport.Comm = (*comm)(nil)

func (c *comm) Rank() int               { return c.me }
func (c *comm) Size() int               { return len(c.members) }
func (c *comm) Sent(to int) bool        { return !c.dataOut[to].busy.Load() }
func (c *comm) Received(from int) bool  { return !c.dataIn[from].busy.Load() }
func (c *comm) Send(to int, p []byte)   { c.dataOut[to].post(p) }
func (c *comm) Recv(from int, p []byte) { c.dataIn[from].post(p) }

// dataOut carries messages to one other member.
type dataOut struct {
	lane    *lane
	to      int
	posted  chan []byte // capacity 1
	busy    atomic.Bool // from post until run has written the message
	started bool        // the driver's

	// run's.
	sequence uint32
	header   [headerSize]byte
	parts    [2][]byte
	vector   net.Buffers
}

func (o *dataOut) init(l *lane, to int) {
	o.lane, o.to, o.posted = l, to, make(chan []byte, 1)
}

// post panics when the message before it is outstanding.
func (o *dataOut) post(p []byte) {
	if o.to == o.lane.me || o.busy.Swap(true) {
		panic(fmt.Sprintf("tcp: member %d posts a send to member %d, which is itself or has one outstanding", o.lane.me, o.to))
	}
	o.posted <- p
	if !o.started {
		o.started = true
		o.lane.net.start(&o.lane.net.farewells, o.run)
	}
}

// run connects and writes what is posted, until the network ends.
func (o *dataOut) run() {
	n, rank := o.lane.net, o.lane.members[o.to]
	c := o.lane.dial(n.ctx, o.to, data)
	for c != nil {
		select {
		case p := <-o.posted:
			if err := o.write(c, p); err != nil {
				if n.failed(c, brokenError{error: err}) {
					c = nil
					continue
				}
				return
			}
			o.busy.Store(false)
			n.bell.Ring()
		case <-n.aborted:
			n.farewell(c, o.sequence)
			return
		case <-n.leaving:
			n.farewell(c, o.sequence)
			c.Close()
			return
		}
	}
	if n.peers[rank].left.Load() {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d had data for it in lane %d", rank, n.cfg.Rank, o.lane.id))
	}
}

func (o *dataOut) write(c *conn, p []byte) error {
	header{messageData, o.sequence, uint64(len(p))}.put(o.header[:])
	o.sequence++
	o.parts[0], o.parts[1] = o.header[:], p
	o.vector = o.parts[:]
	_, err := o.vector.WriteTo(c.TCPConn) // the TCPConn itself: it knows writev
	o.parts[1] = nil
	return err
}

// dataIn takes messages from one other member.
type dataIn struct {
	lane      *lane
	from      int
	posted    chan []byte // capacity 1
	busy      atomic.Bool // from post until run has filled the buffer
	connected bool        // guarded by Network.mu
}

func (i *dataIn) init(l *lane, from int) {
	i.lane, i.from, i.posted = l, from, make(chan []byte, 1)
}

// post panics when the receive before it is outstanding.
func (i *dataIn) post(p []byte) {
	if i.from == i.lane.me || i.busy.Swap(true) {
		panic(fmt.Sprintf("tcp: member %d posts a receive from member %d, which is itself or has one outstanding", i.lane.me, i.from))
	}
	i.posted <- p
}

// readAhead is the size of a data connection's buffer. A message that fits
// costs one system call; of a larger one this much is copied, and the rest goes
// straight to where it belongs.
const readAhead = 4 << 10

// run fills what is posted, until the connection ends.
func (i *dataIn) run(c *conn) {
	n := i.lane.net
	in := incoming{r: bufio.NewReaderSize(c.TCPConn, readAhead)}
	left := n.serve(c, &in, func(h header) error {
		if h.kind != messageData {
			return fmt.Errorf("message of kind %d on the data stream", h.kind)
		}
		p, err := i.await()
		if err != nil {
			return err
		}
		if uint64(len(p)) != h.length {
			return fmt.Errorf("lane %d: rank %d sent %d bytes where rank %d expects %d",
				i.lane.id, c.rank, h.length, n.cfg.Rank, len(p))
		}
		if err := readPayload(in.r, p); err != nil {
			return err
		}
		i.busy.Store(false)
		n.bell.Ring()
		return nil
	})
	if !left {
		return
	}
	if _, err := i.await(); err == nil {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d waits for data of it in lane %d", c.rank, n.cfg.Rank, i.lane.id))
	}
}

// await waits for a posted buffer.
func (i *dataIn) await() ([]byte, error) {
	select {
	case p := <-i.posted:
		return p, nil
	case <-i.lane.net.aborted:
	case <-i.lane.net.leaving:
	}
	return nil, errEnding
}

// errEnding ends a reader's work because the network has been aborted or closed.
var errEnding = errors.New("the network has come to its end")
