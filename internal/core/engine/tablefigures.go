package engine

import (
	"slices"

	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// tableUse is what figures have of a table, besides what the table knows itself.
type tableUse struct {
	number int
	table  *table.Table
	counts feed.Table
}

// countTables notes that the current execution, Pulls or Pushes, has ended. Tables that have travelled together share
// its time by what they have sent. The caller holds engine.mu.
func (l *lane) countTables() {
	s, x := l.sparse, &l.current
	all := 0
	for i := range x.parts {
		all += 1 + x.parts[i].bytes
	}
	took := float64(max(0, l.clock-x.began))
	for i := range x.parts {
		p := &x.parts[i]
		at := slices.IndexFunc(l.uses, func(u *tableUse) bool { return u.number == int(p.resp.Root) })
		if at < 0 || p.err != nil {
			continue
		}
		c := &l.uses[at].counts
		ns := uint64(took * float64(1+p.bytes) / float64(all))
		if s.push {
			c.Pushes++
			c.PushTime += ns
			continue
		}
		c.Pulls++
		c.PullTime += ns
		if p.entry != nil {
			c.Keys += uint64(len(p.entry.op.Keys))
		}
	}
}

// tableFigures are those of the tables of which this rank has a part: of the world first, in the order in which they
// were made in each.
func (e *Engine) tableFigures() []feed.Table {
	var all []feed.Table
	var tables []*table.Table
	e.mu.Lock()
	for _, l := range *e.lanes.Load() {
		for _, u := range l.uses {
			t := u.counts
			t.Set = l.id
			all, tables = append(all, t), append(tables, u.table)
		}
	}
	e.mu.Unlock()
	for i, t := range tables { // without the lock: a table may be busy for a moment
		all[i].Name = t.Options().Name
		all[i].Rows, all[i].Bytes = uint64(t.Len()), uint64(t.Bytes())
		all[i].Hottest = uint64(1e6 * t.Hottest())
	}
	return all
}
