package engine

import (
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/observe/timeline"
)

// Activities of the timeline besides those of operation.Descriptor, as Horovod names them.
const (
	activityPack   = "MEMCPY_IN_FUSION_BUFFER"
	activityUnpack = "MEMCPY_OUT_FUSION_BUFFER"
	activityFound  = "INIT_NCCL"
	activityFetch  = "MEMCPY_IN_HOST_BUFFER"
	activityStore  = "MEMCPY_OUT_HOST_BUFFER"
)

// traceStart notes that the operations of parts begin.
func (l *lane) traceStart(parts []part) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	for _, p := range parts {
		t.OpStart(p.resp.Name, p.resp.Type.String())
	}
}

// trace notes that the operations of parts enter an activity, and leave the one before.
func (l *lane) trace(parts []part, activity string) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	for _, p := range parts {
		t.ActivityStart(p.resp.Name, activity)
	}
}

// traceMove notes that the data of parts, all of one kind, begins to move. On devices that is when NCCL gets the
// operation: the GPU may begin it later.
func (l *lane) traceMove(parts []part) {
	if t := l.engine.opts.Timeline; t == nil || !t.On() {
		return
	}
	activity := parts[0].resp.Type.Describe().Activity
	if l.current.direct {
		_, what, _ := strings.Cut(activity, "_")
		activity = "NCCL_" + what
	}
	l.trace(parts, activity)
}

// traceStage notes the carrier's stage for the parts of the current execution.
func (l *lane) traceStage(s collective.Stage) {
	switch parts := l.current.parts; s {
	case collective.PackingIn:
		l.trace(parts, activityPack)
	case collective.Moving:
		l.traceMove(parts)
	case collective.PackingOut:
		l.trace(parts, activityUnpack)
	}
}

// traceEnd notes that an operation has ended.
func (l *lane) traceEnd(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.OpEnd(en.request.Name, en.request.DType, en.request.Shape)
}

// traceSubmit notes that this rank has submitted a tensor.
func (l *lane) traceSubmit(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.NegotiateStart(en.request.Name, en.request.Type.String())
	t.Submitted(en.request.Name, l.rank)
}

// traceRequest notes on the coordinator that members have asked for a tensor.
func (l *lane) traceRequest(from []int, r *negotiate.Request) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	if r.Type.Describe().Role == operation.Step {
		return // of a Join
	}
	t.NegotiateStart(r.Name, r.Type.String())
	for _, m := range from {
		t.RankReady(r.Name, m)
	}
}

// traceBatch notes that a batch has been negotiated.
func (l *lane) traceBatch() {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.CycleStart()
	for i, r := range l.responses {
		if r.Type.Describe().Role != operation.Step {
			t.NegotiateEnd(r.Name, timeline.Agreement{Set: l.id, Order: l.sequences[i],
				Ahead: l.early.some && l.early.results[i] != nil})
		}
	}
}
