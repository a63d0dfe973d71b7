package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// earlyBytes is the default of GOROVOD_EARLY_BYTES: the most bytes that travel with a mark on up to four hosts.
var earlyBytes = config.Read(func(string) (string, bool) { return "", false }).EarlyBytes

// ahead is the data of a small allreduce that travels with the marks. Each rank contributes ones.
type ahead struct {
	boards  []transport.EarlyBoard // by rank
	bytes   int                    // of an operand
	results int                    // that have come, and are right
}

// mostAhead is the most bytes that travel with a mark in this job.
func (j *job) mostAhead() (int, error) {
	b, ok := j.lanes[0].Board.(transport.EarlyBoard)
	if !ok {
		return 0, fmt.Errorf("%+v: no data travels with marks", j.shape)
	}
	return b.EarlyBytes(earlyBytes), nil
}

// sendAhead lets the data of later steps, of that many bytes, travel with the marks.
func (j *job) sendAhead(bytes int) {
	a := &ahead{bytes: bytes}
	for _, l := range j.lanes {
		a.boards = append(a.boards, l.Board.(transport.EarlyBoard))
	}
	j.ahead = a
}

func (a *ahead) mark(rank int, card, gen uint32) bool {
	o := transport.Operand{DType: tensor.Float32, Reduce: tensor.Sum, Scale: 1, Data: floats(1, a.bytes)}
	return a.boards[rank].MarkWith(card, gen, &o)
}

// check checks the result that a rank has read.
func (a *ahead) check(rank int, r *transport.Record) error {
	if want := floats(float32(len(a.boards)), a.bytes); string(r.Payload) != string(want) {
		return fmt.Errorf("rank %d: the sum of %d ones is %x", rank, len(a.boards), r.Payload)
	}
	a.results++
	return nil
}

// floats are that many bytes of equal float32.
func floats(v float32, bytes int) (p []byte) {
	for range bytes / 4 {
		p = binary.NativeEndian.AppendUint32(p, math.Float32bits(v))
	}
	return p
}

// simulateAhead returns what one allreduce of a small tensor costs whose data travels with the marks: that of bytes,
// or with 0 of the most that may. It returns the bytes, too.
func simulateAhead(s shape, bytes int) (int, traffic, error) {
	s.tensors, s.cached, s.early = 1, true, earlyBytes
	j, err := newJob(s)
	if err != nil {
		return 0, traffic{}, err
	}
	if err := j.fill(); err != nil {
		return 0, traffic{}, err
	}
	most, err := j.mostAhead()
	if err != nil {
		return 0, traffic{}, err
	}
	if bytes == 0 {
		bytes = most
	}
	j.sendAhead(bytes)
	j.meter.start()
	if err := j.step(); err != nil {
		return 0, traffic{}, err
	}
	if n := len(j.lanes); j.ahead.results != n {
		return 0, traffic{}, fmt.Errorf("%+v: %d of %d ranks have a result of %d bytes; up to %d may travel", s,
			j.ahead.results, n, bytes, most)
	}
	return bytes, j.meter.stop(), nil
}
