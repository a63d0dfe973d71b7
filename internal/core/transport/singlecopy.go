package transport

// Span is a range of a process's memory, by its address in that process. The owner keeps the memory alive, and does not
// move it.
type Span struct{ Addr, Bytes uintptr }

// SingleCopy is an ability that a Shared may have in addition: members read and write one another's own memory without
// staging, once a member has told the others the addresses of its memory.
//
// If others write to a member's memory in an operation, the member does not end the operation before they have told it
// that they are done. If the network is aborted meanwhile, Network.Close returns only when nobody writes to that memory
// any more, and nobody will.
type SingleCopy interface {
	Shared
	// CanCopy reports that this member can now copy from and to the memory of all other members of the lane. Once it
	// has returned false, it always does.
	CanCopy() bool
	// Crowded reports that ranks share cores. It is the same for all members.
	Crowded() bool
	// Copyable reports that others can copy from and to these ranges of this member's memory.
	Copyable(own []Span) bool
	// Expose notes that others copy from or to these ranges of this member's memory in this operation. If they copy
	// from or to the same memory again and again, Expose may move it into larger pages: rarely, and for up to some 50
	// ms of an operation.
	Expose(own []Span)
	// Pull copies from member m's memory to this member's own, Push from its own to member m's: as many bytes as both
	// own and theirs have, at most 1,024 spans each. They block while they copy. False means that the copy has failed,
	// because member m has gone or its memory cannot be copied. Then the network is aborted, or about to be.
	Pull(m int, own, theirs []Span) bool
	Push(m int, theirs, own []Span) bool
}
