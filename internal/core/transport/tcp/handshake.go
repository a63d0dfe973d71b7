package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// stream is one of a lane's connections from member to member.
type stream uint8

const (
	control stream = 0
	data    stream = 1 // the first of Config.Streams
)

// version is the version of the protocol on a proved connection.
const version = 4

// maxEarly bounds the connections per rank that wait for their lane to be opened.
const maxEarly = 64

// hello says what a connection carries. It is part of the proof.
type hello struct {
	generation     uint64
	lane           int64
	from, to, size uint32
	cards          uint32
	incarnation    uint32 // of the lane
	streams        uint32 // the number of data streams
	early          uint32 // Config.Early
	stream         stream
}

const helloSize = 4 + 8 + 8 + 7*4

// nativeOrder is 1 on machines that store the low byte first: data travels as it is in memory.
var nativeOrder = binary.NativeEndian.AppendUint16(nil, 1)[0]

// hello is this rank's hello when it dials another.
func (n *Network) hello(l *lane, rank int, s stream) hello {
	return hello{
		generation: n.cfg.Generation,
		lane:       int64(l.id),
		from:       uint32(n.cfg.Rank), to: uint32(rank), size: uint32(n.cfg.Size),
		cards:       uint32(n.cfg.Cards),
		incarnation: l.incarnation,
		streams:     uint32(n.cfg.Streams),
		early:       uint32(n.cfg.Early),
		stream:      s,
	}
}

func (h hello) encode() []byte {
	p := make([]byte, 0, helloSize)
	p = binary.LittleEndian.AppendUint16(p, version)
	p = append(p, nativeOrder, byte(h.stream))
	p = binary.LittleEndian.AppendUint64(p, h.generation)
	p = binary.LittleEndian.AppendUint64(p, uint64(h.lane))
	for _, v := range []uint32{h.from, h.to, h.size, h.cards, h.incarnation, h.streams, h.early} {
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
		from:       u32(0), to: u32(1), size: u32(2), cards: u32(3), incarnation: u32(4), streams: u32(5),
		early: u32(6),
	}, nil
}

// admit checks a hello against this rank. n.mu is held.
func (n *Network) admit(h hello) error {
	switch {
	case h.generation != n.cfg.Generation:
		return fmt.Errorf("generation %d, here it is %d", h.generation, n.cfg.Generation)
	case h.size != uint32(n.cfg.Size) || h.cards != uint32(n.cfg.Cards):
		return fmt.Errorf("%d ranks with %d cards, here it is %d with %d", h.size, h.cards, n.cfg.Size, n.cfg.Cards)
	case h.to != uint32(n.cfg.Rank):
		return fmt.Errorf("looks for rank %d, here is rank %d", h.to, n.cfg.Rank)
	case h.from >= h.size || h.from == h.to:
		return fmt.Errorf("rank %d to rank %d of %d", h.from, h.to, h.size)
	case h.early != uint32(n.cfg.Early):
		return fmt.Errorf("%d bytes travel ahead, here it is %d", h.early, n.cfg.Early)
	case h.streams != uint32(n.cfg.Streams):
		return fmt.Errorf("%d data streams, here it is %d", h.streams, n.cfg.Streams)
	case h.stream >= data+stream(n.cfg.Streams):
		return fmt.Errorf("stream %d", h.stream)
	}
	switch l := n.lanes[int(h.lane)]; {
	case n.outdated(h):
		return nil // place makes a goroutine read and drop its data
	case l != nil && h.incarnation == l.incarnation:
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
