package engine

import (
	"fmt"
	"strconv"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// An operation without a name gets a number on its process set (operation.Descriptor.Noname), so that operations on a
// set which other ranks are not in do not change the numbers of those ranks. When all members have joined, each counts
// from 1 again, because they may have done different numbers of operations.

// number gives en its name. admit has accepted en already. The caller holds engine.mu.
func (l *lane) number(en *Entry) *Error {
	prefix := en.request.Type.Describe().Noname()
	n := l.unnamed[prefix] + 1
	var digits [20]byte
	name := prefix + "." + string(strconv.AppendUint(digits[:0], n, 10))
	if _, taken := l.table[name]; taken {
		return duplicateName(name)
	}
	l.unnamed[prefix] = n
	en.request.Name = name
	return nil
}

// numberGroup names a group and its operations. The caller holds engine.mu, and calls unnumberGroup if it refuses the
// group.
func (l *lane) numberGroup(g *group) {
	prefix := g.prefix()
	l.unnamed[prefix]++
	g.name = fmt.Sprintf("%s.%d", prefix, l.unnamed[prefix])
	for i, en := range g.entries {
		en.request.Name = string(operation.AppendMember(nil, g.name, i, len(g.entries)))
		en.request.Group = g.name
	}
}

// prefix begins the name of a group that has none.
func (g *group) prefix() string { return g.entries[0].request.Type.Describe().NonameGrouped() }

func (l *lane) unnumberGroup(g *group) { l.unnamed[g.prefix()]-- }

// alignNumbers lets all members count from 1 again, at the end of a Join, before any of them can submit something.
func (l *lane) alignNumbers() {
	l.engine.mu.Lock()
	clear(l.unnamed)
	l.engine.mu.Unlock()
}
