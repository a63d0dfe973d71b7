package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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

	// What run leaves to finish when the lane is closed.
	conn *conn
	rest []byte // of the message that was cut short; a copy

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
		n := o.lane.net
		n.mu.Lock()
		defer n.mu.Unlock()
		n.startUser(o.lane, &n.farewells, o.run, o.finish)
	}
}

// run connects and writes what is posted, until the network or the lane ends.
func (o *dataOut) run() {
	l, n, rank := o.lane, o.lane.net, o.lane.members[o.to]
	c := l.dial(l.ctx, o.to, data)
	for c != nil {
		select {
		case p := <-o.posted:
			if isClosed(l.closed) {
				o.conn = c
				return
			}
			if err := o.write(c, p); err != nil {
				if isClosed(l.closed) && errors.Is(err, os.ErrDeadlineExceeded) {
					o.conn = c
					return
				}
				if n.failed(c, brokenError{error: err}) {
					c = nil
					continue
				}
				return
			}
			o.busy.Store(false)
			n.bell.Ring()
		case <-l.closed:
			o.conn = c
			return
		case <-n.aborted:
			n.farewell(c, o.sequence)
			return
		case <-n.leaving:
			n.farewell(c, o.sequence)
			c.Close()
			return
		}
	}
	if n.peers[rank].left.Load() && n.forsaken(l) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d had data for it in lane %d", rank, n.cfg.Rank, l.id))
	}
}

// finish ends the connection of a lane that has been closed.
func (o *dataOut) finish() {
	if o.conn != nil {
		o.lane.net.leave(o.conn, o.rest, o.sequence)
	}
}

func (o *dataOut) write(c *conn, p []byte) error {
	header{messageData, o.sequence, uint64(len(p))}.put(o.header[:])
	o.sequence++
	o.parts[0], o.parts[1] = o.header[:], p
	o.vector = o.parts[:]
	_, err := o.vector.WriteTo(c.TCPConn) // the TCPConn itself: it knows writev
	if err != nil && isClosed(o.lane.closed) {
		o.rest = slices.Concat(o.vector...)
	}
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
	left      bool        // read's; the other end has left in good order
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

// read fills what is posted, until the connection or the lane ends.
func (i *dataIn) read(c *conn) {
	n := i.lane.net
	in := incoming{r: bufio.NewReaderSize(c.TCPConn, readAhead)}
	i.left = n.serve(c, &in, func(h header) error {
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
}

// finish is what comes after read, when no posted buffer is touched any more.
func (i *dataIn) finish(c *conn) {
	n := i.lane.net
	if c.abandoned() {
		n.drain(c)
		return
	}
	if !i.left {
		return
	}
	if _, err := i.await(); err == nil && n.forsaken(i.lane) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d waits for data of it in lane %d", c.rank, n.cfg.Rank, i.lane.id))
	}
}

// await waits for a posted buffer.
func (i *dataIn) await() ([]byte, error) {
	select {
	case p := <-i.posted:
		return p, nil
	case <-i.lane.closed:
	case <-i.lane.net.aborted:
	case <-i.lane.net.leaving:
	}
	return nil, errEnding
}

// errEnding ends a reader's work because the network has been aborted or closed,
// or the lane closed.
var errEnding = errors.New("the network or the lane has come to its end")
