//go:build cgo && linux

package mpi

/*
#include "libmpi.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// messages is a transport.Comm of messages of MPI. It keeps its first error, which Lane reports. After it no posted
// message ends.
type messages struct {
	communicator *Communicator
	sends, recvs []message
	behind       int // the number of messages of which MPI has not got all yet
	err          error
}

// message is the posted message to or from one member.
type message struct {
	rest    []byte // the part that has not yet been handed to MPI
	posted  bool
	request C.uintptr_t
	memory  runtime.Pinner
}

func newMessages(c *Communicator) *messages {
	return &messages{communicator: c, sends: make([]message, c.size), recvs: make([]message, c.size)}
}

func (m *messages) Rank() int { return m.communicator.rank }
func (m *messages) Size() int { return m.communicator.size }

func (m *messages) Send(to int, p []byte)   { m.post(&m.sends[to], C.GV_Isend, to, p) }
func (m *messages) Recv(from int, p []byte) { m.post(&m.recvs[from], C.GV_Irecv, from, p) }

func (m *messages) Sent(to int) bool       { return m.ended(&m.sends[to], C.GV_Isend, to) }
func (m *messages) Received(from int) bool { return m.ended(&m.recvs[from], C.GV_Irecv, from) }

func (m *messages) post(g *message, what uint32, peer int, p []byte) {
	if len(p) == 0 {
		return // both sides know
	}
	g.rest = p
	m.behind++
	g.memory.Pin(unsafe.SliceData(p))
	m.ended(g, what, peer)
}

// advance hands MPI the messages that it could not get when they were posted: later pieces of long messages, and
// messages posted while another thread called MPI. An algorithm asks only for the messages without which it cannot go
// on, but other members may wait for any.
func (m *messages) advance() {
	if m.behind == 0 {
		return
	}
	for peer := range m.sends {
		if len(m.sends[peer].rest) > 0 {
			m.Sent(peer)
		}
		if len(m.recvs[peer].rest) > 0 {
			m.Received(peer)
		}
	}
}

// ended reports whether all of a message has been sent, or has come. It posts the next piece of a long one.
func (m *messages) ended(g *message, what uint32, peer int) bool {
	if len(g.rest) == 0 && !g.posted {
		return true
	}
	lib := m.communicator.library
	if m.err != nil || !lib.mu.TryLock() {
		return false
	}
	defer lib.mu.Unlock()
	c := lib.call
	for m.err == nil {
		if g.posted {
			c.request = g.request
			if m.err = lib.do(C.GV_Test); m.err != nil {
				break
			}
			if g.request = c.request; c.result == 0 {
				return false
			}
			g.posted = false
		}
		if len(g.rest) == 0 {
			g.memory.Unpin()
			return true
		}
		piece := g.rest[:min(len(g.rest), limit)]
		if g.rest = g.rest[len(piece):]; len(g.rest) == 0 {
			m.behind--
		}
		c.in, c.out = address(piece), address(piece)
		c.comm, c.dtype, c.count, c.peer, c.tag = m.communicator.handle, lib.functions.byte, C.int64_t(len(piece)),
			C.int(peer), 0
		m.err = lib.do(what)
		g.request, g.posted = c.request, true
	}
	lib.lose(m.err)
	return false
}
