// Package operation describes each kind of operation once: how it is called, what ranks must agree on, what comes
// out, and how it combines elements. The table in table.go says it; the negotiation, the engine, the Go and C
// interfaces, and through these the Python front ends read it there. The package holds no state.
package operation

import "strconv"

// Kind is what is asked for. The numbers below 64 are Horovod's request types, which C callers and the wire see.
type Kind uint8

// The kinds.
const (
	Allreduce     Kind = 0
	Allgather     Kind = 1
	Broadcast     Kind = 2
	Join          Kind = 3
	Adasum        Kind = 4
	Alltoall      Kind = 5
	Barrier       Kind = 6
	Reducescatter Kind = 7

	// AddProcessSet and RemoveProcessSet are sent on the world's lane, by all of
	// its members. They take no notice of Join: joined members send them too.
	AddProcessSet    Kind = 64
	RemoveProcessSet Kind = 65
	// Settle asks the coordinator to retire all slots. A member that has read the
	// Response with its own rank as Root has no mark under way any more: each has
	// led to a record that it has read, been taken over by the coordinator, or
	// come back as stale. Before it joins, a member must have no mark under way.
	Settle Kind = 66
	// Tune is nobody's Request. As a Response, which member 0 publishes by itself,
	// it changes the lane's settings to FirstDims for all that comes after it.
	Tune Kind = 67
)

var labels = map[Kind]string{
	Allreduce:        "ALLREDUCE",
	Allgather:        "ALLGATHER",
	Broadcast:        "BROADCAST",
	Join:             "JOIN",
	Adasum:           "ADASUM",
	Alltoall:         "ALLTOALL",
	Barrier:          "BARRIER",
	Reducescatter:    "REDUCESCATTER",
	AddProcessSet:    "ADD_PROCESS_SET",
	RemoveProcessSet: "REMOVE_PROCESS_SET",
	Settle:           "SETTLE",
	Tune:             "TUNE",
}

// Valid reports whether k is one of the constants.
func (k Kind) Valid() bool { return k <= Reducescatter || k >= AddProcessSet && k <= Tune }

// String is the name that Horovod's messages use, such as "ALLREDUCE".
func (k Kind) String() string {
	if name, ok := labels[k]; ok {
		return name
	}
	return "request type " + strconv.Itoa(int(k))
}

// ChangesSets reports whether k changes the process sets.
func (k Kind) ChangesSets() bool { return k == AddProcessSet || k == RemoveProcessSet }
