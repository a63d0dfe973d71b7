package collective

import "iter"

// Inspector looks at the elements that members contribute to a reduction, before they are combined. An algorithm
// shows it each block when the block comes into the cache anyway, because it is copied or combined next. So an
// inspection costs no pass over memory of its own. The rule that all algorithms keep: elements that are not sound reach
// no output and no other member before Unsound has returned nil on the member that contributes them.
type Inspector interface {
	// Sound reports whether all elements of p are sound. p may be a copy of another member's input.
	Sound(p []byte) bool
	// Unsound says that this member's input of a part, or its whole input for 0 of an operation without Parts, may
	// have elements that are not sound. rest has all of it in which they can be: ranges, each with its place in the
	// input in bytes, in any order. An error ends the operation.
	Unsound(part int, rest iter.Seq2[int, []byte]) error
}

// inspectBytes is how much is inspected before it is copied or combined. It fits into the first-level cache.
const inspectBytes = blockBytes

// inspectRange looks at in[from:to], a range of part i's input, of which all from `from` on is intact.
func (l *Lane) inspectRange(i int, in []byte, from, to int) error {
	if l.inspect == nil || l.inspect.Sound(in[from:to]) {
		return nil
	}
	return l.inspect.Unsound(i, func(yield func(int, []byte) bool) { yield(from, in[from:]) })
}
