package collective

// startAllgather makes the ring an allgather: each member's contribution goes around once. start reads the
// contributions' places from l.offsets.
//
// Steps: size-1, overlapped piece by piece. Bytes: each member sends all
// contributions but its successor's and receives all but its own, the least
// possible. Memory: none. Always chosen over Comm.
func (r *ring) startAllgather(l *Lane, in, out []byte) Op {
	copyTo(out[l.offsets[l.rank]:l.offsets[l.rank+1]], in)
	return r.start(l, reduction{in: in, out: out}, l.size-1, 0)
}
