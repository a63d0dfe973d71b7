package engine

import (
	"fmt"
	"slices"
)

// All members submit the operations of one lane and Op.Stream, other than 0, in one order. So an operation can follow
// an earlier one whose memory it uses: the lane announces it when that one has ended. Since the order is the same
// everywhere, members cannot wait for one another crosswise. Until then the later operation is in lane.unready.

// ofStream reports whether en, which is being submitted, may follow other.
func ofStream(en, other *Entry) bool {
	return en.op.Stream != 0 && en.op.Stream == other.op.Stream && en.lane == other.lane &&
		(en.group == nil || en.group != other.group)
}

// ready reports whether en can be announced. The caller holds engine.mu.
func (e *Entry) ready() bool {
	return len(e.follows) == 0 && (e.op.Ready == nil || e.op.Ready())
}

// letFollow notes that an operation has ended. Operations that followed it can be announced. If it has failed, they
// fail, too, except those that follow it only because they have the same name (refused.go). The caller holds engine.mu.
func (l *lane) letFollow(ended *Entry, err *Error) {
	if l.following.Load() == 0 {
		return
	}
	for _, en := range l.unready {
		before := len(en.follows)
		en.follows = slices.DeleteFunc(en.follows, func(first *Entry) bool { return first == ended })
		if len(en.follows) == before {
			continue
		}
		if err != nil && en.refusal == nil && !ended.unheld {
			l.engine.inUse.release(en)
			l.refuseAs(en, err.Code, fmt.Sprintf("it was to follow %s, which has failed: %s", describe(ended),
				err.Reason))
		}
		if len(en.follows) == 0 {
			l.following.Add(-1)
		}
	}
}

// leader is the operation at the head of the chain that e follows, or e itself.
func (e *Entry) leader() *Entry {
	for len(e.follows) > 0 {
		e = e.follows[0]
	}
	return e
}
