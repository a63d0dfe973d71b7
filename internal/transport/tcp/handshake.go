package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorovod/gorovod/internal/auth"
)

// stream is one of a lane's two ways from member to member.
type stream uint8

const (
	control stream = 0
	data    stream = 1
)

// version is the version of what is spoken on a proved connection.
const version = 1

// handshakeTimeout is how long a connection may take to prove itself.
const handshakeTimeout = 10 * time.Second

// maxEarly bounds the connections per rank that wait for their lane to be opened.
const maxEarly = 64

// hello says what a connection is for. It is part of the proof.
type hello struct {
	generation     uint64
	lane           int64
	from, to, size uint32
	slots          uint32
	stream         stream
}

const helloSize = 4 + 8 + 8 + 4*4

// nativeOrder is 1 on machines that store the low byte first: data travels as
// it lies in memory.
var nativeOrder = binary.NativeEndian.AppendUint16(nil, 1)[0]

// hello is what this rank says when it dials another.
func (n *Network) hello(lane, rank int, s stream) hello {
	return hello{
		generation: n.cfg.Generation,
		lane:       int64(lane),
		from:       uint32(n.cfg.Rank), to: uint32(rank), size: uint32(n.cfg.Size),
		slots:  uint32(n.cfg.Slots),
		stream: s,
	}
}

func (h hello) encode() []byte {
	p := make([]byte, 0, helloSize)
	p = binary.LittleEndian.AppendUint16(p, version)
	p = append(p, nativeOrder, byte(h.stream))
	p = binary.LittleEndian.AppendUint64(p, h.generation)
	p = binary.LittleEndian.AppendUint64(p, uint64(h.lane))
	for _, v := range []uint32{h.from, h.to, h.size, h.slots} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	return p
}

func parseHello(p []byte) (hello, error) {
	if len(p) < 4 {
		return hello{}, fmt.Errorf("hello of %d bytes", len(p))
	}
	if v := binary.LittleEndian.Uint16(p); v != version {
		return hello{}, fmt.Errorf("protocol version %d, here it is %d", v, version)
	}
	if len(p) != helloSize {
		return hello{}, fmt.Errorf("hello of %d bytes", len(p))
	}
	if p[2] != nativeOrder {
		return hello{}, errors.New("another byte order")
	}
	u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(p[20+4*i:]) }
	return hello{
		stream:     stream(p[3]),
		generation: binary.LittleEndian.Uint64(p[4:]),
		lane:       int64(binary.LittleEndian.Uint64(p[12:])),
		from:       u32(0), to: u32(1), size: u32(2), slots: u32(3),
	}, nil
}

// admit checks a hello against this rank. n.mu is held.
func (n *Network) admit(h hello) error {
	switch {
	case h.generation != n.cfg.Generation:
		return fmt.Errorf("generation %d, here it is %d", h.generation, n.cfg.Generation)
	case h.size != uint32(n.cfg.Size) || h.slots != uint32(n.cfg.Slots):
		return fmt.Errorf("%d ranks with %d slots, here it is %d with %d", h.size, h.slots, n.cfg.Size, n.cfg.Slots)
	case h.to != uint32(n.cfg.Rank):
		return fmt.Errorf("looks for rank %d, here is rank %d", h.to, n.cfg.Rank)
	case h.from >= h.size || h.from == h.to:
		return fmt.Errorf("rank %d to rank %d of %d", h.from, h.to, h.size)
	case h.stream > data:
		return fmt.Errorf("stream %d", h.stream)
	}
	if l := n.lanes[int(h.lane)]; l != nil {
		return l.admit(h)
	}
	if n.early[h] != nil {
		return errors.New("connected already")
	}
	if len(n.early) >= maxEarly*n.cfg.Size {
		return errors.New("too many connections for lanes that are not open here")
	}
	return nil
}

// After the proof the acceptor sends its verdict: one byte, the length of its
// reason to refuse, then the reason; 0 means welcome. The dialler answers with
// begin on the one connection that it means to use; the acceptor forgets the others.
const begin byte = 0x42

// errRefused is wrapped by refusals of the other end, which trying again will
// not change.
var errRefused = errors.New("refused")

// initiate is the dialler's part of the handshake but for begin.
func (n *Network) initiate(c *conn, h hello) error {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := auth.Initiate(c, n.cfg.Key, h.encode()); err != nil {
		if errors.Is(err, auth.ErrProof) || errors.Is(err, auth.ErrForeign) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return err
	}
	var verdict [256]byte
	if _, err := io.ReadFull(c, verdict[:1]); err != nil {
		return fmt.Errorf("read the verdict: %w", err)
	}
	if size := verdict[0]; size > 0 {
		if _, err := io.ReadFull(c, verdict[:size]); err != nil {
			return fmt.Errorf("read the verdict: %w", err)
		}
		return fmt.Errorf("%w: %s", errRefused, verdict[:size])
	}
	return nil
}

// confirm chooses a connection on which initiate has succeeded.
func (n *Network) confirm(c *conn) error {
	if _, err := c.Write([]byte{begin}); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// respond is the acceptor's part of the handshake. It returns when the dialler
// has chosen this connection.
func (n *Network) respond(c *conn) (hello, error) {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	p, err := auth.Accept(c, n.cfg.Key)
	if err != nil {
		return hello{}, err
	}
	h, err := parseHello(p)
	if err == nil {
		n.mu.Lock()
		err = n.admit(h)
		n.mu.Unlock()
	}
	if err != nil {
		reason := err.Error()
		reason = reason[:min(len(reason), 255)]
		c.Write(append([]byte{byte(len(reason))}, reason...))
		return hello{}, err
	}
	if _, err := c.Write([]byte{0}); err != nil {
		return hello{}, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return hello{}, err
	}
	if answer[0] != begin {
		return hello{}, fmt.Errorf("answer %#x to the verdict", answer[0])
	}
	return h, c.SetDeadline(time.Time{})
}
