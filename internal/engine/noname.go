package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/operation"
)

// Ranks match operations by name. One without a name gets "<kind>.noname.<n>", where n counts those of
// its kind on its process set, from 1: what a rank does on sets that others are not in changes nothing for
// them. When all members have joined, each counts from 1 again, as they may have done different numbers.

// noname begins the names of a kind's operations that have none.
func noname(t operation.Kind, grouped bool) string {
	kind := ""
	switch t {
	case operation.Allreduce, operation.Adasum: // a sum may meet an Adasum, and be told so
		kind = "allreduce"
	case operation.Allgather:
		kind = "allgather"
	case operation.Broadcast:
		kind = "broadcast"
	case operation.Alltoall:
		kind = "alltoall"
	case operation.Reducescatter:
		kind = "reducescatter"
	default:
		return ""
	}
	if grouped {
		return "grouped_" + kind + ".noname"
	}
	return kind + ".noname"
}

// number names an operation that has been admitted otherwise. The caller holds engine.mu.
func (l *lane) number(en *Entry) *Error {
	prefix := noname(en.request.Type, false)
	name := fmt.Sprintf("%s.%d", prefix, l.unnamed[prefix]+1)
	if _, taken := l.table[name]; taken {
		return duplicateName(name)
	}
	l.unnamed[prefix]++
	en.request.Name = name
	return nil
}

// numberGroup names a group and its members. The caller holds engine.mu, and calls unnumberGroup if the
// group is refused.
func (l *lane) numberGroup(g *group) {
	prefix := noname(g.entries[0].request.Type, true)
	l.unnamed[prefix]++
	g.name = fmt.Sprintf("%s.%d", prefix, l.unnamed[prefix])
	for i, en := range g.entries {
		en.request.Name = fmt.Sprintf("%s_%dof%d", g.name, i+1, len(g.entries))
		en.request.Group = g.name
	}
}

func (l *lane) unnumberGroup(g *group) { l.unnamed[noname(g.entries[0].request.Type, true)]-- }

// alignNumbers has all members count alike again, at the end of a Join, before any of them can submit anything.
func (l *lane) alignNumbers() {
	l.engine.mu.Lock()
	clear(l.unnamed)
	l.engine.mu.Unlock()
}
