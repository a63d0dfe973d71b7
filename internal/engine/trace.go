package engine

import (
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
)

// Activities of the timeline besides those of operation.Descriptor, as Horovod names them.
const (
	activityPack   = "MEMCPY_IN_FUSION_BUFFER"
	activityUnpack = "MEMCPY_OUT_FUSION_BUFFER"
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

// trace notes that the operations of parts enter an activity, and leave the
// one that they were in.
func (l *lane) trace(parts []part, activity string) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	for _, p := range parts {
		t.ActivityStart(p.resp.Name, activity)
	}
}

// traceMove notes that the data of parts, all of one kind, begins to move.
func (l *lane) traceMove(parts []part) { l.trace(parts, parts[0].resp.Type.Describe().Activity) }

// traceEnd notes that an operation has ended.
func (l *lane) traceEnd(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.OpEnd(en.request.Name, en.request.DType, en.request.Shape)
}

// traceSubmit notes that this rank has asked for a tensor.
func (l *lane) traceSubmit(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.NegotiateStart(en.request.Name, en.request.Type.String())
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
	for _, r := range l.responses {
		if r.Type.Describe().Role != operation.Step {
			t.NegotiateEnd(r.Name)
		}
	}
}
