package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// protocol begins every hello: it tells this package's connections from others of the job, and has a version.
const protocol = "p2p\x02"

const helloSize = len(protocol) + 8 + 3*4

// hello returns the first bytes that this rank sends when it dials another.
func (m *Endpoint) hello(to int) []byte {
	p := append(make([]byte, 0, helloSize), protocol...)
	p = binary.LittleEndian.AppendUint64(p, m.cfg.Generation)
	for _, v := range []int{m.cfg.Rank, to, m.cfg.Size} {
		p = binary.LittleEndian.AppendUint32(p, uint32(v))
	}
	return p
}

// sender returns the rank that a hello comes from, or an error if that rank may not connect to this one.
func (m *Endpoint) sender(hello []byte) (int, error) {
	if len(hello) != helloSize || string(hello[:len(protocol)]) != protocol {
		return 0, errors.New("here is tagged send and receive")
	}
	p := hello[len(protocol):]
	generation := binary.LittleEndian.Uint64(p)
	u32 := func(i int) int { return int(binary.LittleEndian.Uint32(p[8+4*i:])) }
	from, to, size := u32(0), u32(1), u32(2)
	switch {
	case generation != m.cfg.Generation:
		return 0, fmt.Errorf("generation %d, here it is %d", generation, m.cfg.Generation)
	case size != m.cfg.Size:
		return 0, fmt.Errorf("%d ranks, here it is %d", size, m.cfg.Size)
	case to != m.cfg.Rank:
		return 0, fmt.Errorf("looks for rank %d, here is rank %d", to, m.cfg.Rank)
	case from >= size || from == to:
		return 0, fmt.Errorf("rank %d to rank %d of %d", from, to, size)
	}
	return from, nil
}

// admit returns an error for a hello that this rank refuses.
func (m *Endpoint) admit(hello []byte) error {
	from, err := m.sender(hello)
	if err == nil && m.boxes[from].connected() {
		err = errors.New("connected already")
	}
	return err
}

// take takes a connection that has proved that it belongs to the job.
func (m *Endpoint) take(hello []byte, c *link.Conn) {
	from, err := m.sender(hello)
	if err != nil || !m.register(c, from) {
		c.Close()
		return
	}
	b := &m.boxes[from]
	if !b.connect(c) || !m.start(func() { b.run(c) }) {
		m.drop(c)
	}
}

// A header precedes every message: kind (2 bytes), label (2), tag (4), length of the payload (8), little-endian. Only a
// goodbye travels towards the sender.
const headerSize = 16

const (
	kindMessage uint16 = 1
	kindGoodbye uint16 = 2 // no payload; nothing follows
)

// maxMessage bounds the length in a header, so that nobody believes a damaged one.
const maxMessage = 1 << 46

// header is the decoded header of a message.
type header struct {
	tag    uint32
	label  uint16
	length int
}

func putHeader(p []byte, kind uint16, tag uint32, label uint16, length int) {
	binary.LittleEndian.PutUint16(p, kind)
	binary.LittleEndian.PutUint16(p[2:], label)
	binary.LittleEndian.PutUint32(p[4:], tag)
	binary.LittleEndian.PutUint64(p[8:], uint64(length))
}

// errGoodbye says that the other end has closed its endpoint in good order.
var errGoodbye = errors.New("goodbye")

// parseHeader returns errGoodbye for a goodbye.
func parseHeader(p []byte) (header, error) {
	kind, n := binary.LittleEndian.Uint16(p), binary.LittleEndian.Uint64(p[8:])
	switch {
	case kind == kindGoodbye:
		return header{}, errGoodbye
	case kind != kindMessage || n > maxMessage:
		return header{}, fmt.Errorf("message of kind %#x and %d bytes", kind, n)
	}
	return header{tag: binary.LittleEndian.Uint32(p[4:]), label: binary.LittleEndian.Uint16(p[2:]), length: int(n)}, nil
}

// lost is the error for a connection that has ended.
func lost(rank int, c *link.Conn, err error) error {
	switch {
	case errors.Is(err, errGoodbye):
		return &Left{rank}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the other end closed it without goodbye")
	}
	return &Lost{rank, c.RemoteAddr(), err}
}
