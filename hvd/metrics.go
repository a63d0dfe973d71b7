package hvd

import (
	"time"

	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Figures are the counts and times of this process since Init. All but Pending and OldestPending only grow until
// Shutdown.
type Figures struct {
	// Rank and Size are those of this process and its job.
	Rank, Size int
	// Collectives are the operations as they were executed, by kind and size.
	// Tensors that travelled together make one.
	Collectives []CollectiveFigures
	// Tensors are the operations as the program submitted them.
	Tensors []TensorFigures
	// Wire is what this process has sent to others, by link and size of the collectives.
	Wire []WireFigures
	// Tables are the sparse tables of which this process has a part.
	Tables []TableFigures
	// Negotiation is the time from a tensor's submission until all processes have
	// submitted it.
	Negotiation Histogram
	// Steps are the times from one reduction of the largest tensor whose name comes
	// again and again to the next one. A training loop has one in each step.
	Steps Histogram
	// Samples is what CountSamples has counted.
	Samples uint64
	// Waited is the time in which at least one tensor waited for other processes.
	Waited time.Duration
	// WaitedFor has the ranks for which this process has waited: those that were the last to submit a tensor.
	WaitedFor []Late
	// CacheHits and CacheMisses say how tensors were announced to the others.
	CacheHits, CacheMisses uint64
	// NaNs counts tensors of this process with a NaN or an infinity, if
	// GOROVOD_NAN_CHECK asks for it.
	NaNs uint64
	// Fused is the number of collectives that could carry several tensors. FusedTensors is the number of their tensors,
	// and FusedBytes the bytes of these.
	Fused, FusedTensors, FusedBytes uint64
	// FusionThreshold is the most bytes that travel together.
	FusionThreshold uint64
	// Early is the number of operations whose result came with the agreement on them. EarlyBytes is how many bytes of
	// small tensors may travel so at a time.
	Early, EarlyBytes uint64
	// Hosts says what the connections between the job's hosts are like.
	Hosts HostFigures
	// Pending is the number of operations that have not ended. OldestPending is the age of the oldest.
	Pending       uint64
	OldestPending time.Duration
}

// Late is how long this process has waited for another rank.
type Late struct {
	Rank   int
	Waited time.Duration
}

// CollectiveFigures are about the collectives of one kind, such as "allreduce", and one class of sizes. The class is
// named by its largest size, such as "32KiB".
type CollectiveFigures struct {
	Op, SizeClass string
	Bytes         uint64
	// BusBytes divided by Times.Sum is the bus bandwidth, as NCCL's tests define it.
	BusBytes uint64
	Times    Histogram
}

// HostFigures are what the processes measured between their hosts when they met: the longest time from a host to
// another one, the lowest rate, in bytes a second, and for how long they measured. All are 0 if nothing was measured;
// Rate is 0, too, between hosts that are too far apart.
type HostFigures struct {
	Latency time.Duration
	Rate    uint64
	Took    time.Duration
}

// WireFigures are the bytes that this process has sent over a link, "shm", "tcp", "mpi" or "nccl", in collectives of
// one class of sizes, and how long these collectives took. What MPI and NCCL send is not known: it is what the
// operations take at least. NIC is the network interface, where all connections go over one.
type WireFigures struct {
	Link, NIC, SizeClass string
	Bytes                uint64
	Time                 time.Duration
}

// TensorFigures count tensors by kind, element type and process set, which is a
// number or "other".
type TensorFigures struct {
	Op, DType, Set string
	Count          uint64
}

// TableFigures are about this process's part of a sparse table, and its use of the table.
type TableFigures struct {
	Name        string // its end, if it is long
	Set         int    // the number of the process set
	Rows, Bytes uint64
	// Hottest is the share of this process's lookups that goes to the 16 hottest keys, from 0 to 1: an estimate from a
	// sample.
	Hottest            float64
	Pulls, Pushes      uint64
	PullTime, PushTime time.Duration // of several tables that travelled together, each has its share
	Keys               uint64        // distinct ones of the batches that this process has pulled
}

// Histogram counts durations.
type Histogram struct {
	// Buckets[i] is the number of durations of at most Bound(i) and more than
	// Bound(i-1). The last bucket has all that are longer.
	Buckets []uint64
	Count   uint64
	Sum     time.Duration
}

// Bound is the longest duration of a bucket: 1 µs, 2 µs, 4 µs, …. The last bucket
// of a Histogram has no bound.
func (h *Histogram) Bound(bucket int) time.Duration { return feed.Bound(bucket) }

// Metrics returns the counts and times of this process since Init. Print them, and they are one sentence: see
// Figures.String. It sends nothing. The error is ErrNotInitialized
// before Init and after Shutdown.
func Metrics() (*Figures, error) {
	w := process.World()
	if w == nil {
		return nil, ErrNotInitialized
	}
	f := w.Figures()
	m := &Figures{Rank: w.Place.Rank, Size: w.Place.Size, Negotiation: histogram(&f.Negotiation),
		Steps: histogram(&f.Steps), Samples: f.Samples,
		Waited: time.Duration(f.Waited), CacheHits: f.Marks,
		CacheMisses: f.Requests, NaNs: f.NaNs, Fused: f.Fusion.Batches, FusedTensors: f.Fusion.Tensors,
		FusedBytes: f.Fusion.Bytes, FusionThreshold: f.Fusion.Threshold, Pending: f.Pending,
		OldestPending: time.Duration(f.Oldest), Early: f.Early.Operations, EarlyBytes: f.Early.Bytes,
		Hosts: HostFigures{time.Duration(f.Hosts.Latency), f.Hosts.Rate, time.Duration(f.Hosts.Took)}}
	for _, l := range f.WaitedFor {
		m.WaitedFor = append(m.WaitedFor, Late{l.Rank, time.Duration(l.Nanoseconds)})
	}
	for i := range f.Works {
		c := &f.Works[i]
		m.Collectives = append(m.Collectives, CollectiveFigures{c.OpName(), c.Class.String(), c.Bytes,
			c.Bus, histogram(&c.Times)})
	}
	for _, t := range f.Traffic {
		m.Wire = append(m.Wire, WireFigures{t.Way.String(), f.NICOf(t.Way), t.Class.String(), t.Bytes,
			time.Duration(t.Time)})
	}
	for _, t := range f.Tables {
		m.Tables = append(m.Tables, TableFigures{t.Name, t.Set, t.Rows, t.Bytes, t.HottestShare(), t.Pulls, t.Pushes,
			time.Duration(t.PullTime), time.Duration(t.PushTime), t.Keys})
	}
	for _, t := range f.Tensors {
		m.Tensors = append(m.Tensors, TensorFigures{t.OpName(), t.DType.String(), t.SetName(), t.Count})
	}
	return m, nil
}

// CountSamples counts samples that this process has worked through, so that those
// who watch the job see samples a second. It sends nothing. The error is
// ErrNotInitialized before Init and after Shutdown.
func CountSamples(n uint64) error {
	w := process.World()
	if w == nil {
		return ErrNotInitialized
	}
	w.Engine.Counters().Samples.Add(int64(n))
	return nil
}

func histogram(h *feed.Histogram) Histogram {
	return Histogram{Buckets: h.Counts[:], Count: h.Count(), Sum: time.Duration(h.Sum)}
}
