package operation

import (
	"encoding/json"
	"hash/crc32"
	"strings"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// facts is the table for front ends in other languages, as JSON. include/gorovod.h describes it.
type facts struct {
	ElementTypes []elementType `json:"element_types"`
	ReduceOps    []numbered    `json:"reduce_ops"`
	Wires        []wire        `json:"wires"`
	Operations   []submitted   `json:"operations"`
}

type numbered struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

type elementType struct {
	numbered
	Bytes int `json:"bytes"`
	// Reduced says that such elements can be combined in host memory. Others can only be moved there.
	Reduced bool `json:"reduced"`
}

type wire struct {
	numbered
	Types []int `json:"types"`
	Keeps bool  `json:"keeps"`
}

// submitted is a kind that users can submit.
type submitted struct {
	numbered
	// ReduceOps are its reduce operations, each with the element types that it can combine. The list is empty if the
	// kind combines nothing.
	ReduceOps []reduction `json:"reduce_ops"`
	Output    string      `json:"output"`
	Rooted    bool        `json:"rooted"`
}

type reduction struct {
	Number       int   `json:"number"`
	ElementTypes []int `json:"element_types"`
}

// outputs are the names of the outputs.
var outputs = [...]string{Nothing: "nothing", LikeInput: "like input", OfAll: "of all", Sent: "sent",
	OwnRows: "own rows", OnRootOnly: "on root only", OfKeys: "of keys"}

// Facts returns the table for front ends in other languages, as JSON.
func Facts() string {
	var f facts
	for dt := range tensor.DType(tensor.NumDTypes) {
		f.ElementTypes = append(f.ElementTypes, elementType{numbered{dt.String(), int(dt)}, dt.Size(), !dt.IsFloat8()})
	}
	for op := range tensor.ReduceOp(tensor.NumReduceOps) {
		f.ReduceOps = append(f.ReduceOps, numbered{op.String(), int(op)})
	}
	for w := range tensor.Wire(tensor.NumWires) {
		types := []int{}
		for _, dt := range w.Types() {
			types = append(types, int(dt))
		}
		f.Wires = append(f.Wires, wire{numbered{w.String(), int(w)}, types, w.Keeps()})
	}
	for _, k := range All() {
		if d := k.Describe(); (d.Role == Collective || d.Role == Meeting) && k != Adasum {
			f.Operations = append(f.Operations, submitted{numbered{factName(k), int(k)}, reductions(k),
				outputs[d.Output], d.Has(Root)})
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // these types always have a JSON form
	}
	return string(text)
}

// factName is the name of k in Facts, where each kind has its own name. Messages for users call both kinds of barrier
// by one name.
func factName(k Kind) string {
	if k == NamedBarrier {
		return "named barrier"
	}
	return strings.ToLower(k.Describe().Name)
}

// Version differs between builds that know different operations, because their ranks could not understand one another.
func Version() int { return int(crc32.ChecksumIEEE([]byte(Facts()))) }

// reductions returns the reduce operations that users can ask of k. Those of an allreduce include the ones that Of
// turns into another kind.
func reductions(k Kind) []reduction {
	all := []reduction{}
	for op := range tensor.ReduceOp(tensor.NumReduceOps) {
		if d := Of(k, op).Describe(); d.Ops.Has(op) {
			r := reduction{Number: int(op), ElementTypes: []int{}}
			for _, dt := range d.TypesOf(op).List() {
				r.ElementTypes = append(r.ElementTypes, int(dt))
			}
			all = append(all, r)
		}
	}
	return all
}
