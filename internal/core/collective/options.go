package collective

// Options are the agreed options of a lane. The zero value is the default.
type Options struct {
	// Deterministic fixes the order in which each element is combined, by the lane's hosts alone: over Comm every
	// member's operand in the order of the members, over hosts the members of each host in their order, then the hosts
	// in theirs. Length, place in a buffer and algorithm do not change a bit.
	Deterministic bool
	// Allreduce says whether allreduces and reducescatters over several hosts consist of parts inside the hosts and
	// parts between them. Allgather says the same of allgathers.
	Allreduce, Allgather Hint
}

// Hint is the user's wish about the hierarchical form of an operation.
type Hint int8

// The hints. If no members share a host, or they share no memory, there is no hierarchical form, and a hint changes
// nothing.
const (
	ByModel      Hint = iota // as the model of the cost says
	Flat                     // never
	Hierarchical             // even if the model says otherwise
)
