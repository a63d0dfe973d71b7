package negotiate

// Kept is the place for state by tensor name and process set: the state that a member's codec keeps of a tensor from
// one operation to the next. It hangs on the card in the member's cache (Worker), and lives exactly as long as the
// card:
//
//	begins  when the name gets its card, which is when it is used a second time. Names that are used once, such as those
//	        that the engine invents, keep nothing.
//	ends    when another name takes the card, because the cache is full;
//	        when the tensor is asked for with another shape, type, compression, factor, reduce operation or group: it is
//	        another tensor under an old name, and what the old one owes has no place in it;
//	        when a rank joins, which retires all cards;
//	        when the process set is removed, and at the end of the engine: by a shutdown, an abort, or an elastic reset.
//
// A tensor with a new name is a new tensor. After an elastic reset all state begins from nothing, and nothing is
// divided among the new ranks. The errors of a dead rank are gone, and the survivors go back to the last commit, before
// the steps that left their errors. If ranks only come, each rank loses the error of one step at most.
//
// Each member has its own: members need not agree, and do not even know whether others keep something.
type Kept struct {
	// Residual is what the tensor's elements owe the sum, as float32; nil while none has been needed. Its contents
	// belong to the lane's driver. Its length changes under the engine's lock.
	Residual []byte
}
