package nccl

import "github.com/gorovod/gorovod/internal/carriers/cuda"

// Program is a list of work for one stream. Comm.Advance puts all of it into the stream with one call of C, unless NCCL
// is busy. A Program can be used again, without an allocation.
type Program struct {
	Stream cuda.Stream
	Steps  []Step

	progress progress
}

// progress has the layout of C's struct gv_progress.
type progress struct{ next, pending, late int32 }

// Reset makes the program empty.
func (p *Program) Reset(s cuda.Stream) {
	p.Stream, p.Steps, p.progress = s, p.Steps[:0], progress{}
}

// Rewind makes the same steps run once more.
func (p *Program) Rewind() { p.progress = progress{} }

// Step is one piece of work. It has the layout of C's struct gv_step, and no Go pointers, so that C may read a slice of
// steps.
type Step struct {
	Kind     Kind
	DType    DType
	Op       ReduceOp
	Peer     int32 // the other member of a Send or Recv; the root of a Broadcast or Reduce
	From, To uint64
	Count    uint64 // elements; of a copy, bytes
}

// Kind is what a Step does.
type Kind int32

const (
	WaitEvent   Kind = iota // the stream waits for From
	RecordEvent             // To is reached when all earlier steps are done
	Copy                    // within a device, like all addresses except in the next two
	CopyFromHost
	CopyToHost
	Zero
	GroupStart // NCCL does the steps up to GroupEnd together; a group has only steps of NCCL
	GroupEnd
	AllReduce
	Broadcast
	Reduce
	AllGather     // Count is of one member's part
	ReduceScatter // Count is of one member's part
	Send
	Recv
)

// Wait appends a wait of the stream for an event.
func (p *Program) Wait(e cuda.Event) { p.add(Step{Kind: WaitEvent, From: uint64(e)}) }

// Record appends the record of an event, which is reached when all earlier steps are done.
func (p *Program) Record(e cuda.Event) { p.add(Step{Kind: RecordEvent, To: uint64(e)}) }

// Copy appends a copy of bytes within the device.
func (p *Program) Copy(to, from uintptr, size int) {
	p.add(Step{Kind: Copy, From: uint64(from), To: uint64(to), Count: uint64(size)})
}

// Zero appends a step that fills memory with zeros.
func (p *Program) Zero(to uintptr, size int) {
	p.add(Step{Kind: Zero, To: uint64(to), Count: uint64(size)})
}

// GroupStart appends the start of a group.
func (p *Program) GroupStart() { p.add(Step{Kind: GroupStart}) }

// GroupEnd appends the end of a group.
func (p *Program) GroupEnd() { p.add(Step{Kind: GroupEnd}) }

// AllReduce appends an allreduce of count elements.
func (p *Program) AllReduce(to, from uintptr, count int, t DType, op ReduceOp) {
	p.collective(AllReduce, to, from, count, t, op, 0)
}

// Broadcast appends a broadcast of count elements from a root.
func (p *Program) Broadcast(to, from uintptr, count int, t DType, root int) {
	p.collective(Broadcast, to, from, count, t, 0, root)
}

// Reduce appends a reduction of count elements to a root.
func (p *Program) Reduce(to, from uintptr, count int, t DType, op ReduceOp, root int) {
	p.collective(Reduce, to, from, count, t, op, root)
}

// AllGather appends an allgather of count elements of each member.
func (p *Program) AllGather(to, from uintptr, count int, t DType) {
	p.collective(AllGather, to, from, count, t, 0, 0)
}

// ReduceScatter appends a reducescatter with count elements for each member.
func (p *Program) ReduceScatter(to, from uintptr, count int, t DType, op ReduceOp) {
	p.collective(ReduceScatter, to, from, count, t, op, 0)
}

// Send appends a message of count elements to a peer.
func (p *Program) Send(from uintptr, count int, t DType, peer int) {
	p.collective(Send, 0, from, count, t, 0, peer)
}

// Recv appends the receipt of count elements from a peer.
func (p *Program) Recv(to uintptr, count int, t DType, peer int) {
	p.collective(Recv, to, 0, count, t, 0, peer)
}

func (p *Program) collective(k Kind, to, from uintptr, count int, t DType, op ReduceOp, peer int) {
	p.add(Step{Kind: k, DType: t, Op: op, Peer: int32(peer), From: uint64(from), To: uint64(to), Count: uint64(count)})
}

func (p *Program) add(s Step) { p.Steps = append(p.Steps, s) }

// failed names the function of the next step, which has failed, or the earlier steps.
func (p *Program) failed() string {
	if p.progress.late != 0 {
		return "an operation of NCCL"
	}
	if i := int(p.progress.next); i < len(p.Steps) {
		return kinds[p.Steps[i].Kind]
	}
	return kinds[GroupEnd]
}

// kinds are the functions behind the steps.
var kinds = [...]string{
	WaitEvent: "cuStreamWaitEvent", RecordEvent: "cuEventRecord", Copy: "cuMemcpyDtoDAsync",
	CopyFromHost: "cuMemcpyHtoDAsync", CopyToHost: "cuMemcpyDtoHAsync", Zero: "cuMemsetD8Async",
	GroupStart: "ncclGroupStart", GroupEnd: "ncclGroupEnd", AllReduce: "ncclAllReduce", Broadcast: "ncclBroadcast",
	Reduce: "ncclReduce", AllGather: "ncclAllGather", ReduceScatter: "ncclReduceScatter",
	Send: "ncclSend", Recv: "ncclRecv",
}
