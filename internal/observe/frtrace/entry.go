package frtrace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/observe/flight"
)

// entry is an operation on the rank of d, in the form that the analyser reads; it is the index-th entry of the rank's
// file. r is the rank's record. r is nil if the rank has none of an agreed operation: the rank has joined, or the
// record is older than those that are kept. Then another rank's record replaces it. ranks is the size of the process
// set.
func entry(o *op, r *flight.Record, d *flight.Dump, index, ranks int) []field {
	about := ""
	if r == nil {
		r, about = o.any(), " (this rank has joined, or its record is gone)"
	}
	kind := kindOf(r.Op)
	in, out := sizes(o, r, kind, int64(ranks))
	name, text := group(o.set)
	dtypes := []any{dtype(r.DType)}
	return []field{
		{"record_id", index},
		{"pg_id", o.set},
		{"process_group", pair{name, text}},
		{"collective_seq_id", int64(o.number)},
		{"p2p_seq_id", 0},
		{"op_id", int64(o.number)},
		// nccl is the only library that all versions of the analyser know
		{"profiling_name", "nccl:" + kind + " " + strings.Map(plain, r.Name)},
		{"time_created_ns", r.Submitted},
		{"input_sizes", in},
		{"input_dtypes", dtypes},
		{"output_sizes", out},
		{"output_dtypes", dtypes},
		{"state", state(r)},
		{"time_discovered_started_ns", when(r.Started)},
		{"time_discovered_completed_ns", when(r.Ended)},
		{"retired", r.Ended != 0},
		{"timeout_ms", 0},
		{"is_p2p", false},
		// The analyser prints it as "NAME at FILE:LINE", as the operation's stack.
		{"frames", []any{[]field{
			{"name", fmt.Sprintf("%s %q of %s %v%s", r.Op, r.Name, r.DType, r.Shape, about)},
			{"filename", d.Host}, {"line", d.PID}}}},
	}
}

// plain keeps an operation's name one word without colons, because the analyser cuts at these.
func plain(c rune) rune {
	if c == ':' || c <= ' ' {
		return '_'
	}
	return c
}

func when(ns int64) any {
	if ns == 0 {
		return nil
	}
	return ns
}

// state is how far an operation has come. A failed operation keeps its last state.
func state(r *flight.Record) string {
	switch {
	case r.Ended != 0 && !r.Failed:
		return "completed"
	case r.Started != 0:
		return "started"
	}
	return "scheduled"
}

// kindOf is PyTorch's name of an operation. An operation that PyTorch does not have becomes a barrier, because all
// ranks meet in it.
func kindOf(label string) string {
	switch label {
	case "ALLREDUCE", "ADASUM":
		return "all_reduce"
	case "ALLGATHER":
		return "all_gather"
	case "BROADCAST":
		return "broadcast"
	case "ALLTOALL":
		return "all_to_all"
	case "REDUCESCATTER":
		return "reduce_scatter"
	case "REDUCE":
		return "reduce"
	case "GATHER":
		return "gather"
	case "SCATTER":
		return "scatter"
	}
	return "barrier"
}

// dtype is PyTorch's name of an element type.
func dtype(name string) string {
	if known, ok := map[string]string{"uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int",
		"int64": "Long", "float16": "Half", "float32": "Float", "float64": "Double", "bool": "Bool",
		"bfloat16": "BFloat16"}[name]; ok {
		return known
	}
	return name
}

var (
	unknown = []any{[]any{}}  // sizes that a rank does not know; the analyser does not require them
	uneven  = []any{[]any{0}} // may differ between ranks: the analyser would call that a mistake
	list    = func(shape []int64) []any {
		dims := make([]any, len(shape))
		for i, n := range shape {
			dims[i] = n
		}
		return []any{dims}
	}
)

// sizes are an operation's input and output sizes. A rank records only its input's shape; the output's follows from it.
func sizes(o *op, r *flight.Record, kind string, ranks int64) (in, out []any) {
	switch kind {
	case "barrier":
		return unknown, unknown
	case "all_to_all", "scatter":
		return list(r.Shape), unknown
	case "gather":
		if o.rowsDiffer() {
			return uneven, unknown
		}
		return list(r.Shape), unknown
	case "all_gather":
		switch {
		case o.rowsDiffer():
			return uneven, uneven
		case len(r.Shape) == 0:
			return list(r.Shape), list([]int64{ranks})
		}
		return list(r.Shape), list(append([]int64{r.Shape[0] * ranks}, r.Shape[1:]...))
	case "reduce_scatter":
		if len(r.Shape) == 0 || r.Shape[0]%ranks != 0 {
			return uneven, uneven
		}
		return list(r.Shape), list(append([]int64{r.Shape[0] / ranks}, r.Shape[1:]...))
	}
	return list(r.Shape), list(r.Shape)
}

// rowsDiffer reports whether the ranks' tensors differ in the first dimension alone, as an allgather allows.
func (o *op) rowsDiffer() bool {
	differ := false
	first := o.any().Shape
	for _, r := range o.records {
		switch {
		case r == nil:
		case len(r.Shape) != len(first) || len(first) == 0 || !slices.Equal(r.Shape[1:], first[1:]):
			return false
		case r.Shape[0] != first[0]:
			differ = true
		}
	}
	return differ
}
