package engine

import (
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
)

// Activities of the timeline, as Horovod names them: the native transports
// stand where Gloo stood.
const (
	activityPack          = "MEMCPY_IN_FUSION_BUFFER"
	activityUnpack        = "MEMCPY_OUT_FUSION_BUFFER"
	activityAllreduce     = "GLOO_ALLREDUCE"
	activityAdasum        = "MPI_ADASUM_ALLREDUCE" // Horovod has it over MPI alone
	activityAllgather     = "GLOO_ALLGATHER"
	activityBroadcast     = "GLOO_BCAST"
	activityAlltoall      = "MPI_ALLTOALL" // Horovod's name over Gloo, too
	activityReducescatter = "GLOO_REDUCESCATTER"
)

// traceStart notes that the operations of parts begin.
func (l *lane) traceStart(parts []part) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	for _, p := range parts {
		t.OpStart(p.resp.Name, traceName(p.resp.Type))
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

// traceEnd notes that an operation has ended.
func (l *lane) traceEnd(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.OpEnd(en.request.Name, en.request.DType, en.request.Shape)
}

// traceName is how the timeline calls an operation.
func traceName(t operation.Kind) string { return t.String() }

// traceSubmit notes that this rank has asked for a tensor.
func (l *lane) traceSubmit(en *Entry) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	t.NegotiateStart(en.request.Name, traceName(en.request.Type))
}

// traceRequest notes on the coordinator that members have asked for a tensor.
func (l *lane) traceRequest(from []int, r *negotiate.Request) {
	t := l.engine.opts.Timeline
	if t == nil || !t.On() {
		return
	}
	if r.Type == operation.Settle {
		return // a step of Join
	}
	t.NegotiateStart(r.Name, traceName(r.Type))
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
		if r.Type != operation.Settle {
			t.NegotiateEnd(r.Name)
		}
	}
}
