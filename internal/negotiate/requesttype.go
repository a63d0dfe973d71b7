package negotiate

import "strconv"

var requestTypes = map[RequestType]string{
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

// Valid reports whether t is one of the constants.
func (t RequestType) Valid() bool { return t <= Reducescatter || t >= AddProcessSet && t <= Tune }

// String is the name that Horovod's messages use, such as "ALLREDUCE".
func (t RequestType) String() string {
	if name, ok := requestTypes[t]; ok {
		return name
	}
	return "request type " + strconv.Itoa(int(t))
}

// onSets reports whether t changes the process sets.
func (t RequestType) onSets() bool { return t == AddProcessSet || t == RemoveProcessSet }
