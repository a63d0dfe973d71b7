package negotiate

import "strconv"

var requestTypes = [...]string{
	Allreduce:     "ALLREDUCE",
	Allgather:     "ALLGATHER",
	Broadcast:     "BROADCAST",
	Join:          "JOIN",
	Adasum:        "ADASUM",
	Alltoall:      "ALLTOALL",
	Barrier:       "BARRIER",
	Reducescatter: "REDUCESCATTER",
}

// Valid reports whether t is one of the constants.
func (t RequestType) Valid() bool { return int(t) < len(requestTypes) }

// String is the name that Horovod's messages use, such as "ALLREDUCE".
func (t RequestType) String() string {
	if !t.Valid() {
		return "request type " + strconv.Itoa(int(t))
	}
	return requestTypes[t]
}
