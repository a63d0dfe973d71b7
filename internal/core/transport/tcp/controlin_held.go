package tcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
)

// serve lends the connection, and reads it after the connection has come back.
func (i *controlIn) serve(c *conn) {
	i.buffer = make([]byte, frameBuffer)
	c.frames = i
	if i.lend(c) {
		i.awaitReturn(c)
	}
	i.mu.Lock()
	begun := slices.Clone(i.buffer[:i.filled])
	i.mu.Unlock()
	i.read(c, begun)
}

// read takes frames until the connection or the lane ends. begun is the data that has been read already.
func (i *controlIn) read(c *conn, begun []byte) {
	n := i.lane.net
	in := incoming{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(begun), c), frameBuffer), sequence: i.sequence}
	var frame []byte
	n.serve(c, &in, func(h header) error {
		if h.kind != messageBoard || h.length > i.limit() {
			return fmt.Errorf("message of kind %d and %d bytes on the control stream", h.kind, h.length)
		}
		if uint64(cap(frame)) < h.length {
			frame = make([]byte, h.length)
		}
		frame = frame[:h.length]
		if err := readPayload(in.r, frame); err != nil {
			return err
		}
		if err := i.lane.board.Receive(i.from, frame); err != nil {
			return fmt.Errorf("lane %d: %w", i.lane.id, err)
		}
		n.cfg.Wake()
		return nil
	})
	if c.abandoned() {
		n.drain(c)
	}
}
