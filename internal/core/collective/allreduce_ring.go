package collective

// startAllreduce makes the ring an allreduce of large data: reduce-scatter, then
// allgather, over one share a member.
//
// Share i is combined in the order i, i+1, …, i-1 of the members on its way around, by one member at a time, and its
// final form is passed around unchanged, so all members get the same bits. 16-bit floats are rounded at each hop. The
// scale is applied by the hop that completes a share.
//
// With compression each hop rounds the data that it sends. The final form is rounded once, before it is passed around:
// see wire.go.
//
// Steps: 2(size-1), overlapped piece by piece. Bytes: each member sends and receives 2n(size-1)/size, the least
// possible (n being the bytes on the wire), and reduces n(size-1)/size. Memory: two pieces. Chosen if doubling costs
// more, see model.go.
func (r *ring) startAllreduce(l *Lane, todo reduction) Op {
	for i := range l.size {
		l.offsets[i], l.offsets[i+1] = share(len(todo.in), l.size, i)
	}
	return r.start(l, todo, 2*(l.size-1), l.size-1)
}
