package collective

import "unsafe"

// Alltoall sends each member m the next sendBytes[m] bytes of in. It fills out with the bytes from all members, in
// member order, recvBytes[m] bytes from m. A member knows only how much it sends. AlltoallCounts tells it how much it
// will receive. in and out must not overlap. The operation does not keep sendBytes and recvBytes.
//
// If a member sends another number of bytes than this one expects, the operation notices while it runs. Over Shared it
// then ends with an error, on this member only. Over Comm the transport aborts.
func (l *Lane) Alltoall(in []byte, sendBytes []int64, out []byte, recvBytes []int64) Op {
	sends, err := l.deal(l.offsets, sendBytes)
	if err != nil {
		return l.refuse("alltoall: input: %w", err)
	}
	receives, err := l.deal(l.places, recvBytes)
	if err != nil {
		return l.refuse("alltoall: output: %w", err)
	}
	switch {
	case len(in) != sends:
		return l.refuse("alltoall: input of %d bytes, expected %d", len(in), sends)
	case len(out) != receives:
		return l.refuse("alltoall: output of %d bytes, expected %d", len(out), receives)
	case sendBytes[l.rank] != recvBytes[l.rank]:
		return l.refuse("alltoall: member %d sends itself %d bytes and expects %d", l.rank, sendBytes[l.rank],
			recvBytes[l.rank])
	case l.size == 1:
		copy(out, in)
		return l.done()
	}
	l.begin()
	if l.shared != nil {
		return l.alltoallShared.start(l, in, out)
	}
	return l.alltoallPairwise.start(l, in, out)
}

// AlltoallCounts sets received[m] to the entry for this member in member m's send. Both have an entry for each member,
// do not overlap, and belong to the operation until it has ended.
func (l *Lane) AlltoallCounts(send, received []int64) Op {
	if len(send) != l.size || len(received) != l.size {
		return l.refuse("alltoall: %d counts to send and %d to receive for %d members", len(send),
			len(received), l.size)
	}
	for m := range l.each {
		l.each[m] = 8
	}
	return l.Alltoall(int64Bytes(send), l.each, int64Bytes(received), l.each)
}

// int64Bytes is s as bytes, in the processor's order, which is the same on all
// members.
func int64Bytes(s []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}
