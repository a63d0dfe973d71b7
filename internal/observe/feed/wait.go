package feed

import (
	"cmp"
	"slices"
	"strings"
)

// SetWaits sets Waits from all operations that have not ended. It sorts and shortens the list that it is given.
func (f *Figures) SetWaits(waits []Wait) {
	slices.SortFunc(waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(b.Age, a.Age), cmp.Compare(a.Name, b.Name))
	})
	waits = waits[:min(len(waits), MaxWaits)]
	for i := range waits {
		waits[i].Name, waits[i].Op = short(waits[i].Name), waits[i].Op[:min(len(waits[i].Op), maxOp)]
	}
	f.Waits = waits
}

// SetTables sets Tables from all that a rank has: the last ones of the list. It shortens names, and drops tables whose
// short names are the same as an earlier one's.
func (f *Figures) SetTables(tables []Table) {
	f.Tables = nil
	known := map[tableKey]bool{}
	for _, t := range tables[max(0, len(tables)-MaxTables):] {
		t.Name = cut(t.Name, maxTable)
		if key := t.key(); !known[key] {
			known[key] = true
			f.Tables = append(f.Tables, t)
		}
	}
}

// short cuts a name that is too long.
func short(name string) string { return cut(name, maxName) }

// cut shortens a name of more than most bytes. It keeps the end, because names differ there.
func cut(name string, most int) string {
	name = strings.ToValidUTF8(name, "?")
	if len(name) <= most {
		return name
	}
	const dots = "…"
	return dots + strings.ToValidUTF8(name[len(name)-most+len(dots):], "")
}
