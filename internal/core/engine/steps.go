package engine

import (
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// steps counts the program's steps, of which nobody tells the engine: a training loop reduces its largest tensor once
// in each. So the mark of a step is the largest tensor whose name comes again and again, and a step is the time from
// one of its reductions to the next. steps is the driver's, under engine.mu.
type steps struct {
	times feed.Histogram
	mark  stepMark
	began moment // when the mark came last
	// candidate is a larger tensor that may come as often as the mark. It was seen at the count of seenAt.
	candidate stepMark
	seenAt    uint64
	count     uint64 // of marks
	// between and most count reductions: since the mark came last, and the most there were between two marks. A mark
	// that stays away for much longer belongs to a part of the program that has ended.
	between, most uint64
}

// stepMark is a tensor of a lane.
type stepMark struct {
	lane  int
	name  string // "" for none
	bytes int64
}

const (
	// mostAccumulated is how many marks may lie between two of a larger tensor that takes over: some programs reduce a
	// loss for each batch, and the gradients only after some of these. A tensor of each epoch comes less often.
	mostAccumulated = 32
	// leastGone and goneSteps are after how many reductions, and after how many steps of them, a mark is gone.
	leastGone = 1000
	goneSteps = 20
)

// reduced notes that all members have submitted a tensor; again if its name had been seen before.
func (s *steps) reduced(lane int, resp *negotiate.Response, again bool, now moment) {
	switch resp.Type {
	case operation.Allreduce, operation.Adasum, operation.Reducescatter:
	default:
		return
	}
	if resp.Err != "" {
		return
	}
	bytes := int64(resp.DType.Size())
	for _, n := range resp.Shape { // agreed on, so it does not overflow
		bytes *= n
	}
	m := stepMark{lane, resp.Name, bytes}
	s.between++
	switch {
	case m == s.mark:
		s.times.Observe(int64(now - s.began))
		s.count++
		s.most, s.between, s.began = max(s.most, s.between), 0, now
	case !again: // it may be the only one of its name
	case s.mark.name == "" || s.between > leastGone+goneSteps*s.most:
		s.mark, s.candidate = m, stepMark{}
		s.most, s.between, s.began = 0, 0, now
	case bytes <= s.mark.bytes:
	case m == s.candidate && s.count-s.seenAt <= mostAccumulated:
		s.mark, s.candidate = m, stepMark{}
		s.most, s.between, s.began = 0, 0, now
	case bytes >= s.candidate.bytes:
		s.candidate, s.seenAt = m, s.count
	}
}
