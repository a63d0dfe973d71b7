package negotiate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// check is one condition on the members' Requests. It has either refuse or ok. ok compares the first member's Request
// with each member's, its own included.
type check struct {
	// of selects kinds, by the first Request; nil: all.
	of func(d *operation.Descriptor) bool
	// refuse returns a text if the Requests cannot be executed, otherwise "".
	refuse func(c *Coordinator, reqs []*Request) string
	ok     func(first, r *Request) bool
	// text is Horovod's message about the first pair that is not ok.
	text func(first, r *Request) string
	// show describes this field of a member's Request.
	show func(r *Request) string
}

// checks are Horovod's, in Horovod's order. The first one that fails gives the text.
var checks = []check{
	{ // Not Horovod's. It comes first: the other checks mean nothing once a member has refused.
		ok:   func(_, r *Request) bool { return r.Refused == "" },
		text: func(_, r *Request) string { return r.Refused },
	},
	{ // Not Horovod's, for kinds that it lacks: beside such a call, a mismatch of data types says nothing.
		ok: func(first, r *Request) bool {
			return r.Type == first.Type || max(r.Type, first.Type) < operation.AddProcessSet
		},
		text: mismatchedOperations,
		show: func(r *Request) string { return r.Type.String() },
	},
	{
		ok: func(first, r *Request) bool { return r.DType == first.DType },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched data types: One rank had type %v, but another rank had type %v.",
				first.DType, r.DType)
		},
		show: func(r *Request) string { return r.DType.String() },
	},
	{
		ok:   func(first, r *Request) bool { return r.Type == first.Type },
		text: mismatchedOperations,
		show: func(r *Request) string { return r.Type.String() },
	},
	{ // Not Horovod's; the checks below are for the kinds that remain.
		ok: func(first, _ *Request) bool {
			role := first.Type.Describe().Role
			return role == operation.Collective || role == operation.SetChange || first.Type == operation.Barrier
		},
		text: func(first, _ *Request) string { return fmt.Sprintf("Operation %v is not supported.", first.Type) },
	},
	{
		of: agreeing(operation.Shape),
		ok: func(first, r *Request) bool { return r.Shape.Equal(first.Shape) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor of shape %v, but another rank "+
				"sent a tensor of shape %v.", first.Type, first.Shape, r.Shape)
		},
		show: showShape,
	},
	{
		of: agreeing(operation.Factors),
		ok: func(first, r *Request) bool {
			return sameFactor(r.Prescale, first.Prescale) && sameFactor(r.Postscale, first.Postscale)
		},
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched prescale and/or postscale factors: One rank sent factors %s, but another "+
				"rank sent factors %s.", showFactors(first), showFactors(r))
		},
		show: showFactors,
	},
	{
		of: agreeing(operation.Op),
		ok: func(first, r *Request) bool { return r.ReduceOp == first.ReduceOp },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched reduction operation: One rank sent reduction op %d, but another rank sent "+
				"reduction op %d.", first.ReduceOp, r.ReduceOp)
		},
		show: func(r *Request) string { return r.ReduceOp.String() },
	},
	{ // Not Horovod's: there a compressed tensor has another type.
		of: agreeing(operation.Wire),
		ok: func(first, r *Request) bool { return r.Wire == first.Wire },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched compression: One rank sent compression %v, but another rank sent "+
				"compression %v.", first.Wire, r.Wire)
		},
		show: func(r *Request) string { return r.Wire.String() },
	},
	{
		of:     func(d *operation.Descriptor) bool { return d.Role == operation.Collective },
		refuse: (*Coordinator).refuseJoined,
	},
	{
		of: agreeing(operation.Rows),
		ok: func(first, _ *Request) bool { return len(first.Shape) > 0 },
		text: func(first, _ *Request) string {
			return fmt.Sprintf("Process-set rank zero tried to %v a rank-zero tensor.", first.Type)
		},
		show: showShape,
	},
	{
		of: agreeing(operation.Tail),
		ok: func(first, r *Request) bool { return len(r.Shape) == len(first.Shape) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor of rank %d, but another rank "+
				"sent a tensor of rank %d.", first.Type, len(first.Shape), len(r.Shape))
		},
		show: showShape,
	},
	{
		of: agreeing(operation.Tail),
		ok: func(first, r *Request) bool { return r.Shape[1:].Equal(first.Shape[1:]) },
		text: func(first, r *Request) string {
			d := 1
			for first.Shape[d] == r.Shape[d] {
				d++
			}
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor with dimension %d equal to %d, "+
				"but another rank sent a tensor with dimension %d equal to %d.", first.Type, d, first.Shape[d], d,
				r.Shape[d])
		},
		show: showShape,
	},
	{
		of:     func(d *operation.Descriptor) bool { return d.PrescaleFused },
		refuse: (*Coordinator).refusePrescale,
	},
	{
		of: agreeing(operation.Root),
		ok: func(first, r *Request) bool { return r.Root == first.Root },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v root ranks: One rank specified root rank %d, but another rank "+
				"specified root rank %d.", first.Type, first.Root, r.Root)
		},
		show: func(r *Request) string { return strconv.Itoa(int(r.Root)) },
	},
	{ // Not Horovod's, which has no tables.
		of: agreeing(operation.Table),
		ok: func(first, r *Request) bool { return r.Root == first.Root },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v tables: One rank specified table number %d, but another rank specified "+
				"table number %d.", first.Type, first.Root, r.Root)
		},
		show: func(r *Request) string { return strconv.Itoa(int(r.Root)) },
	},
	{
		ok: func(first, r *Request) bool { return sameKind(r.Device, first.Device) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v CPU/GPU device selection: One rank specified device %s, but another "+
				"rank specified device %s.", first.Type, showDevice(first), showDevice(r))
		},
		show: showDevice,
	},
	// The rest is not Horovod's, which sends no groups, and compares process sets by separate collectives.
	{
		ok: func(first, r *Request) bool { return r.Group == first.Group && r.GroupSize == first.GroupSize },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched groups: One rank sent the tensor in %s, but another rank sent it in %s.",
				showGroup(first), showGroup(r))
		},
		show: showGroup,
	},
	{
		of: agreeing(operation.Ranks),
		ok: func(first, r *Request) bool { return len(r.Ranks) == len(first.Ranks) },
		text: func(*Request, *Request) string {
			return "A process set could not be added: mismatching size on different ranks."
		},
		show: func(r *Request) string { return strconv.Itoa(len(r.Ranks)) },
	},
	{
		of: agreeing(operation.Ranks),
		ok: func(first, r *Request) bool { return slices.Equal(r.Ranks, first.Ranks) },
		text: func(*Request, *Request) string {
			return "A process set could not be added: mismatching values on different ranks."
		},
		show: showSet,
	},
	{
		of: agreeing(operation.Set),
		ok: func(first, r *Request) bool { return r.Root == first.Root },
		text: func(first, r *Request) string {
			return fmt.Sprintf("A process set could not be removed: One rank specified id %d, but another rank "+
				"specified id %d.", first.Root, r.Root)
		},
		show: func(r *Request) string { return strconv.Itoa(int(r.Root)) },
	},
}

func mismatchedOperations(first, r *Request) string {
	return fmt.Sprintf("Mismatched operations: One rank did an %v, but another rank did an %v.", first.Type, r.Type)
}

// agreeing selects the kinds in whose fields all members must agree.
func agreeing(fields operation.Field) func(d *operation.Descriptor) bool {
	return func(d *operation.Descriptor) bool { return d.Has(fields) }
}

// validate says why the members' Requests for one name cannot be executed; empty if they can. Those of joined members
// are nil. Horovod's text comes first, then each rank's value.
func (c *Coordinator) validate(reqs []*Request) string {
	first := firstOf(reqs)
	// Members with equal Requests share one: look at each Request once.
	c.distinct = c.distinct[:0]
	for _, r := range reqs {
		if r != nil && (len(c.distinct) == 0 || r != c.distinct[len(c.distinct)-1]) {
			c.distinct = append(c.distinct, r)
		}
	}
	defer clear(c.distinct)
	for i := range checks {
		k := &checks[i]
		if k.of != nil && !k.of(first.Type.Describe()) {
			continue
		}
		if k.refuse != nil {
			if text := k.refuse(c, reqs); text != "" {
				return text
			}
			continue
		}
		for _, r := range c.distinct {
			if k.ok(first, r) {
				continue
			}
			if k.show == nil {
				return k.text(first, r)
			}
			return k.text(first, r) + " " + c.variants(reqs, k.show)
		}
	}
	return c.implausible(reqs)
}

// refuseJoined refuses operations that need the members that have joined. Members that asked for the tensor before they
// joined do take part.
func (c *Coordinator) refuseJoined(reqs []*Request) string {
	first := firstOf(reqs)
	d := first.Type.Describe()
	if d.Absent == operation.TakesZeros {
		return ""
	}
	absent := absentOf(reqs)
	switch {
	case len(absent) == 0:
		return ""
	case d.Absent == operation.NeedsAll && !c.options.JoinAllOps:
		ranks := make([]int, len(absent))
		for i, m := range absent {
			ranks[i] = c.members[m]
		}
		return d.Name + " is not supported with Join at this time." + d.Advice + " (joined: " + showRanks(ranks) + ")"
	case !d.Has(operation.Root):
		return ""
	}
	root, ok := slices.BinarySearch(c.members, int(first.Root))
	if !ok || reqs[root] != nil {
		return ""
	}
	if d.Output == operation.OnRootOnly || first.Type == operation.Gather {
		return fmt.Sprintf("%s to a root rank that has joined is not possible. (root rank: %d)", d.Name, first.Root)
	}
	return fmt.Sprintf("%s from a root rank that has joined is not possible. (root rank: %d)", d.Name, first.Root)
}

// refusePrescale refuses a prescaled tensor that is larger than the fusion buffer, because the engine would scale it
// there.
func (c *Coordinator) refusePrescale(reqs []*Request) string {
	r := firstOf(reqs)
	size, err := byteSize(r.Shape, r.DType)
	if err != nil || r.Prescale == 1 || size <= c.options.FusionThreshold {
		return ""
	}
	return fmt.Sprintf("%s with prescale factor %s needs the fusion buffer, but the tensor has %d bytes. Increase "+
		"HOROVOD_FUSION_THRESHOLD (now %d bytes) to at least that.", r.Type.Describe().Name,
		strconv.FormatFloat(r.Prescale, 'g', -1, 64), size, c.options.FusionThreshold)
}

// reducible are the element types that an operation combines in the memory where r has its tensor.
func reducible(d *operation.Descriptor, r *Request) operation.DTypes {
	if r.Device == CPUDevice {
		return d.TypesOf(r.ReduceOp)
	}
	return d.TypesOnDevices(r.ReduceOp)
}

// implausible refuses Requests that agree but that nobody can execute. The engine already refuses them at submission.
// The check here keeps a damaged Request from becoming a wrong Response.
func (c *Coordinator) implausible(reqs []*Request) string {
	first := firstOf(reqs)
	d := first.Type.Describe()
	switch {
	case d.Role == operation.SetChange:
		return c.implausibleSet(first)
	case d.Role != operation.Collective:
		return ""
	case d.Has(operation.Op) && !d.Ops.Has(first.ReduceOp):
		return fmt.Sprintf("%v with %v is not supported.", first.Type, first.ReduceOp)
	case d.Has(operation.Op) && first.DType.Valid() && !reducible(d, first).Has(first.DType):
		return fmt.Sprintf("%v with %v of %v is not supported.", first.Type, first.ReduceOp, first.DType)
	case first.DType.Valid() && !d.Types.Has(first.DType):
		return fmt.Sprintf("%v of %v is not supported.", first.Type, first.DType)
	case d.Has(operation.Root) && !c.isMember(first.Root):
		return fmt.Sprintf("%s received invalid root rank %d for provided process set", strings.ToLower(d.Name),
			first.Root)
	case !first.DType.Valid():
		return fmt.Sprintf("Unknown data type: %v.", first.DType)
	case d.Output == operation.OfAll:
		return implausibleSum(reqs)
	}
	for _, r := range reqs { // the members of an alltoall have shapes of their own
		if r == nil {
			continue
		}
		if _, err := byteSize(r.Shape, r.DType); err != nil {
			return fmt.Sprintf("%v: %v", first.Type, err)
		}
	}
	return ""
}

// isMember reports whether a world rank is a member of the lane.
func (c *Coordinator) isMember(rank int32) bool {
	_, ok := slices.BinarySearch(c.members, int(rank))
	return ok
}

// implausibleSet is implausible for changes of the process sets.
func (c *Coordinator) implausibleSet(first *Request) string {
	if first.Type == operation.RemoveProcessSet {
		if !c.ids.live(first.Root) {
			return fmt.Sprintf("A process set could not be removed: there is none with id %d.", first.Root)
		}
		return ""
	}
	if first.Ranks == nil {
		return "A process set could not be added: it has no ranks."
	}
	for _, rank := range first.Ranks {
		if !c.isMember(rank) {
			return fmt.Sprintf("A process set could not be added: invalid rank %d.", rank)
		}
	}
	return ""
}

// implausibleSum refuses an allgather whose output has too many bytes to count.
func implausibleSum(reqs []*Request) string {
	first := firstOf(reqs)
	var dims []int64
	for _, r := range reqs {
		if r == nil {
			continue
		}
		if r.Shape[0] < 0 {
			return fmt.Sprintf("%v: shape %v: dimension 0 is negative", first.Type, r.Shape)
		}
		dims = append(dims, r.Shape[0])
	}
	sum, err := sumDims(dims)
	if err != nil {
		return fmt.Sprintf("%v: %v", first.Type, err)
	}
	shape := slices.Clone(first.Shape)
	shape[0] = sum
	if _, err := byteSize(shape, first.DType); err != nil {
		return fmt.Sprintf("%v: %v", first.Type, err)
	}
	return ""
}

// showShape leaves out the first dimension of an alltoall and of what has a row for each key, because nobody compares
// it, and because it is unknown if the Request came as a mark.
func showShape(r *Request) string {
	out := r.Type.Describe().Output
	if (out == operation.Sent || out == operation.OfKeys) && len(r.Shape) > 0 {
		return strings.Replace(r.Shape.String(), strconv.FormatInt(r.Shape[0], 10), "_", 1)
	}
	return r.Shape.String()
}

func showGroup(r *Request) string {
	if r.Group == "" {
		return "no group"
	}
	name := r.Group
	if len(name) > 256 { // several of them must fit into maxErr
		name = name[:256] + "…"
	}
	return fmt.Sprintf("group %q of %d", name, r.GroupSize)
}

func showSet(r *Request) string {
	ranks := make([]int, len(r.Ranks))
	for i, n := range r.Ranks {
		ranks[i] = int(n)
	}
	var b strings.Builder
	b.WriteByte('{')
	writeList(&b, ranks)
	b.WriteByte('}')
	return b.String()
}

func showFactors(r *Request) string {
	return "(" + strconv.FormatFloat(r.Prescale, 'g', -1, 64) + ", " + strconv.FormatFloat(r.Postscale, 'g',
		-1, 64) + ")"
}

func showDevice(r *Request) string {
	if r.Device == CPUDevice {
		return "CPU"
	}
	return "GPU"
}
