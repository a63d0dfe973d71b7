package collective

// Options are what all members of a lane have agreed on. The zero value is right
// where nobody has asked for anything.
type Options struct {
	// Deterministic fixes the order in which each element is combined, by the
	// lane's hosts alone: over Comm every member's operand in the order of the
	// members, over hosts the members of each host in their order, then the hosts in
	// theirs. Neither length nor place in a buffer nor algorithm change a bit.
	Deterministic bool
	// Allreduce says whether allreduces and reducescatters over several hosts are
	// made of parts inside the hosts and parts between them; Allgather the same of
	// allgathers.
	Allreduce, Allgather Hint
}

// Hint is what a user has said about the hierarchical form of an operation.
type Hint int8

// The hints. Where the members of a lane have no host in common, or share no
// memory, there is no hierarchical form, and a hint changes nothing.
const (
	ByModel      Hint = iota // what the model of its cost says
	Flat                     // never
	Hierarchical             // also where the model says otherwise
)
