package metrics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// desc describes a metric. Labels have few values: kinds of operations, element types, classes of sizes, at most 17
// process sets, at most 513 ranks, and at most 65 sparse tables. Names of tensors and hosts are not among them.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("horovod_"+name, help, labels, nil)
}

const wireHelp = "Bytes of tensors that ranks have sent to others, by link, and by network interface where each rank " +
	"uses one. What MPI and NCCL send is not known: it is what the operations take at least."

var (
	info      = desc("info", "1; the label has gorovod's version.", "version")
	worldSize = desc("world_size", "Number of ranks of the present world.")
	workers   = desc("workers", "Ranks of the present world that have joined, and that have not.", "state")
	reporting = desc("reporting_ranks", "Ranks of the present world whose figures are in the sums.")
	resets    = desc("elastic_resets_total", "How often an elastic job was formed anew.", "cause")
	tensors   = desc("collectives_total",
		"Operations that programs submitted and that were executed, counted on each rank that "+
			"took part.", "op", "dtype", "process_set")
	bytesMoved = desc("collective_bytes_total",
		"Sizes of the tensors of executed collectives, counted on each rank.", "op")
	wireBytes = desc("wire_bytes_total", wireHelp, "link")
	nicBytes  = desc("wire_bytes_total", wireHelp, "link", "nic")
	busBytes  = desc("bus_bytes_total",
		"Sizes of the tensors of executed collectives times the factor of the bus bandwidth, counted on each rank. "+
			"Its rate over that of horovod_collective_seconds_sum is the bus bandwidth of a rank.", "op", "size_class")
	seconds = desc("collective_seconds",
		"Time from the beginning of a collective on a rank to its end there. Fused tensors make "+
			"one.", "op", "size_class")
	negotiation = desc("negotiation_seconds",
		"Time from a tensor's submission on a rank until all ranks have submitted it.")
	stepSeconds = desc("step_seconds",
		"Time of a rank's step: from one reduction of the largest tensor whose name comes again to the next one.")
	steps   = desc("steps_total", "Steps of rank 0.")
	samples = desc("samples_total", "Samples that programs say they have worked through, on all ranks.")
	wait    = desc("wait_seconds_total",
		"Time in which at least one tensor of a rank waited for other ranks.", "rank")
	waitedFor = desc("waited_for_seconds_total",
		"Time that the other ranks, all together, have waited for this one, the last to submit a tensor.", "rank")
	waitFor = desc("wait_for_seconds_total",
		"Time that a rank has waited for another one, the last to submit a tensor. "+
			"The 8 ranks that were waited for most of late have labels of their own, and the first 64 that waited.",
		"rank", "for_rank")
	nans = desc("nan_total",
		"Tensors that a rank contributed with a NaN or an infinity, where GOROVOD_NAN_CHECK is "+
			"on.", "rank")
	resident = desc("resident_memory_bytes", "Memory of a rank's process.", "rank")
	pending  = desc("pending_operations",
		"Operations that have been submitted and have not ended, of all ranks.")
	oldest     = desc("oldest_pending_seconds", "Age of the oldest operation that has not ended on any rank.")
	hits       = desc("cache_hits_total", "Tensors that the response cache announced.")
	misses     = desc("cache_misses_total", "Tensors that were announced in full.")
	fused      = desc("fusion_collectives_total", "Collectives of tensors that can travel together.")
	fusedIn    = desc("fusion_tensors_total", "Tensors in these collectives.")
	fusedBytes = desc("fusion_bytes_total", "Bytes of these tensors.")
	threshold  = desc("fusion_threshold_bytes", "The most bytes that travel together.")
	early      = desc("early_operations_total", "Operations whose result came with the agreement on them.")
	earlyBytes = desc("early_bytes",
		"How many bytes of a rank's small tensors may travel before the agreement on them.")
	linkLatency = desc("link_latency_seconds",
		"Time from a host to another one, the longest that the ranks measured when they met.")
	linkRate = desc("link_bytes_per_second",
		"What passes from a host to another one, the lowest that the ranks measured when they met.")
	linksTook = desc("links_measured_seconds", "How long the ranks measured.")
	fill      = desc("fusion_fill_ratio",
		"Bytes of these collectives over what they could have held, since the start.")

	tableRows  = desc("table_rows", "Rows of a sparse table, on all ranks.", "table", "process_set")
	tableBytes = desc("table_bytes",
		"Memory that the ranks have reserved for the rows of a sparse table, and to find them.", "table", "process_set")
	tableHottest = desc("table_hottest_ratio",
		"Share of a table's lookups that goes to the 16 hottest keys, estimated on each rank; the ranks' mean.",
		"table", "process_set")
	tableOps = desc("table_operations_total", "Pulls and pushes of a sparse table, counted on each rank.",
		"table", "process_set", "op")
	tableSeconds = desc("table_seconds_total",
		"Time of these pulls and pushes on the ranks. Tables that travel together have a share each.",
		"table", "process_set", "op")
	tableKeys = desc("table_keys_total", "Distinct keys of the batches that ranks have pulled of a sparse table.",
		"table", "process_set")
)

// Describe sends nothing, because the set of metrics depends on what the job does.
func (j *Job) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics. It leaves out unknown values.
func (j *Job) Collect(out chan<- prometheus.Metric) {
	joined, size := j.Ready()
	j.mu.Lock()
	defer j.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(info, 1, version.Version)
	gauge(worldSize, float64(size))
	gauge(workers, float64(joined), "joined")
	gauge(workers, float64(max(0, size-joined)), "missing")
	gauge(reporting, float64(len(j.ranks)))
	for _, cause := range membership.Causes() {
		count(resets, float64(j.resets[cause]), string(cause))
	}
	if len(j.total.byRank) == 0 {
		return // no rank has sent figures
	}
	s := &j.total
	byOp := map[string]uint64{}
	for key, w := range s.works {
		byOp[w.OpName()] += w.Bytes
		count(busBytes, float64(w.Bus), w.OpName(), key.class.String())
		out <- histogram(seconds, &w.Times, w.OpName(), key.class.String())
	}
	for op, n := range byOp {
		count(bytesMoved, float64(n), op)
	}
	for key, n := range s.wire {
		if key.nic == "" {
			count(wireBytes, float64(n), key.way.String())
		} else {
			count(nicBytes, float64(n), key.way.String(), key.nic)
		}
	}
	for key, n := range s.tensors {
		t := feed.Tensors{Op: key.op, DType: key.dtype, Set: key.set}
		count(tensors, float64(n), t.OpName(), t.DType.String(), t.SetName())
	}
	out <- histogram(negotiation, &s.negotiation)
	if s.stepTimes.Count() > 0 {
		out <- histogram(stepSeconds, &s.stepTimes)
		count(steps, float64(s.steps))
	}
	if s.samples > 0 {
		count(samples, float64(s.samples))
	}
	count(hits, float64(s.marks))
	count(misses, float64(s.requests))
	count(fused, float64(s.fusion.Batches))
	count(fusedIn, float64(s.fusion.Tensors))
	count(fusedBytes, float64(s.fusion.Bytes))
	gauge(threshold, float64(s.fusion.Threshold))
	count(early, float64(s.early.Operations))
	gauge(earlyBytes, float64(s.early.Bytes))
	if s.hosts.Took > 0 {
		gauge(linkLatency, feed.Seconds(s.hosts.Latency))
		gauge(linksTook, feed.Seconds(s.hosts.Took))
	}
	if s.hosts.Rate > 0 {
		gauge(linkRate, float64(s.hosts.Rate))
	}
	if room := float64(s.fusion.Batches) * float64(s.fusion.Threshold); room > 0 {
		gauge(fill, float64(s.fusion.Bytes)/room)
	}
	for _, rank := range slices.Sorted(maps.Keys(s.byRank)) {
		r := s.byRank[rank]
		count(wait, feed.Seconds(r.waited), rankName(rank))
		count(waitedFor, feed.Seconds(r.waitedFor), rankName(rank))
		count(nans, float64(r.nans), rankName(rank))
	}
	for k, ns := range j.pairs.waited {
		count(waitFor, feed.Seconds(ns), pairName(k.rank), pairName(k.late))
	}
	for k, t := range s.tables {
		set := strconv.Itoa(k.set)
		count(tableOps, float64(t.Pulls), k.name, set, "pull")
		count(tableOps, float64(t.Pushes), k.name, set, "push")
		count(tableSeconds, feed.Seconds(t.PullTime), k.name, set, "pull")
		count(tableSeconds, feed.Seconds(t.PushTime), k.name, set, "push")
		count(tableKeys, float64(t.Keys), k.name, set)
	}
	j.gauges(gauge)
}

// pairName is the label of a rank of a pair.
func pairName(rank int) string {
	if rank == otherRank {
		return "other"
	}
	return strconv.Itoa(rank)
}

// gauges sends what the ranks of the present world have told last. The caller holds mu.
func (j *Job) gauges(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	if len(j.ranks) == 0 {
		return
	}
	var open, age uint64
	memory := map[int]uint64{}
	tables := map[tableKey]*feed.Table{}
	telling := map[tableKey]uint64{}
	for rank, t := range j.ranks {
		for i := range t.last.Tables {
			of := &t.last.Tables[i]
			k := j.total.tableKey(of)
			sum := tables[k]
			if sum == nil {
				sum = &feed.Table{}
				tables[k] = sum
			}
			sum.Rows, sum.Bytes, sum.Hottest = sum.Rows+of.Rows, sum.Bytes+of.Bytes, sum.Hottest+of.Hottest
			telling[k]++
		}
		open += t.last.Pending
		age = max(age, t.last.Oldest)
		if t.last.Resident > 0 {
			memory[label(rank)] += t.last.Resident
		}
	}
	gauge(pending, float64(open))
	gauge(oldest, feed.Seconds(age))
	for k, t := range tables {
		set := strconv.Itoa(k.set)
		gauge(tableRows, float64(t.Rows), k.name, set)
		gauge(tableBytes, float64(t.Bytes), k.name, set)
		gauge(tableHottest, t.HottestShare()/float64(telling[k]), k.name, set)
	}
	for rank, n := range memory {
		gauge(resident, float64(n), rankName(rank))
	}
}

// rankName is a rank's number; "other" for ranks without figures of their own.
func rankName(rank int) string {
	if rank >= maxRanks {
		return "other"
	}
	return strconv.Itoa(rank)
}

func histogram(d *prometheus.Desc, h *feed.Histogram, labels ...string) prometheus.Metric {
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i := range feed.Buckets {
		sum += h.Counts[i]
		buckets[feed.Bound(i).Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(d, h.Count(), feed.Seconds(h.Sum), buckets, labels...)
}
