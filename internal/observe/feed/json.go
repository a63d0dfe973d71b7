package feed

import "encoding/json"

// JSON is the figures as an object for the C interface, in base units: see gorovod_metrics in include/gorovod.h.
func (f *Figures) JSON(rank, size int) ([]byte, error) {
	type histogram struct {
		Count   uint64   `json:"count"`
		Seconds float64  `json:"seconds"`
		Buckets []uint64 `json:"buckets"`
	}
	of := func(h *Histogram) histogram { return histogram{h.Count(), Seconds(h.Sum), h.Counts[:]} }
	type work struct {
		Op        string `json:"op"`
		SizeClass string `json:"size_class"`
		Bytes     uint64 `json:"bytes"`
		BusBytes  uint64 `json:"bus_bytes"`
		histogram
	}
	type tensors struct {
		Op         string `json:"op"`
		DType      string `json:"dtype"`
		ProcessSet string `json:"process_set"`
		Count      uint64 `json:"count"`
	}
	type wire struct {
		Link      string  `json:"link"`
		NIC       string  `json:"nic,omitempty"`
		SizeClass string  `json:"size_class"`
		Bytes     uint64  `json:"bytes"`
		Seconds   float64 `json:"seconds"`
	}
	type late struct {
		Rank    int     `json:"rank"`
		Seconds float64 `json:"seconds"`
	}
	bounds := make([]float64, Buckets)
	for i := range bounds {
		bounds[i] = Bound(i).Seconds()
	}
	works, counts, waitedFor := []work{}, []tensors{}, []late{}
	for _, l := range f.WaitedFor {
		waitedFor = append(waitedFor, late{l.Rank, Seconds(l.Nanoseconds)})
	}
	for i := range f.Works {
		w := &f.Works[i]
		works = append(works, work{w.OpName(), w.Class.String(), w.Bytes, w.Bus, of(&w.Times)})
	}
	for _, t := range f.Tensors {
		counts = append(counts, tensors{t.OpName(), t.DType.String(), t.SetName(), t.Count})
	}
	type table struct {
		Name        string  `json:"name"`
		ProcessSet  int     `json:"process_set"`
		Rows        uint64  `json:"rows"`
		Bytes       uint64  `json:"bytes"`
		Hottest     float64 `json:"hottest"`
		Pulls       uint64  `json:"pulls"`
		PullSeconds float64 `json:"pull_seconds"`
		Pushes      uint64  `json:"pushes"`
		PushSeconds float64 `json:"push_seconds"`
		Keys        uint64  `json:"keys"`
	}
	tables := []table{}
	for _, t := range f.Tables {
		tables = append(tables, table{t.Name, t.Set, t.Rows, t.Bytes, t.HottestShare(), t.Pulls, Seconds(t.PullTime),
			t.Pushes, Seconds(t.PushTime), t.Keys})
	}
	wires := []wire{}
	for _, t := range f.Traffic {
		wires = append(wires, wire{t.Way.String(), f.NICOf(t.Way), t.Class.String(), t.Bytes, Seconds(t.Time)})
	}
	return json.Marshal(map[string]any{
		"rank": rank, "size": size, "bucket_bounds": bounds, "collectives": works, "tensors": counts,
		"wire":         wires,
		"tables":       tables,
		"negotiation":  of(&f.Negotiation),
		"steps":        of(&f.Steps),
		"samples":      f.Samples,
		"wait_seconds": Seconds(f.Waited),
		"waited_for":   waitedFor,
		"cache":        map[string]uint64{"hits": f.Marks, "misses": f.Requests},
		"fusion": map[string]uint64{"collectives": f.Fusion.Batches, "tensors": f.Fusion.Tensors,
			"bytes": f.Fusion.Bytes, "threshold": f.Fusion.Threshold},
		"early": map[string]uint64{"operations": f.Early.Operations, "bytes": f.Early.Bytes},
		"hosts": map[string]any{"latency_seconds": Seconds(f.Hosts.Latency), "bytes_per_second": f.Hosts.Rate,
			"measured_seconds": Seconds(f.Hosts.Took)},
		"nans":                   f.NaNs,
		"pending":                f.Pending,
		"oldest_pending_seconds": Seconds(f.Oldest),
	})
}
