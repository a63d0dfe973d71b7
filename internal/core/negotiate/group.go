package negotiate

import "slices"

// groupKey names a group. Members that disagree about the size mean different groups.
type groupKey struct {
	name string
	size int32
}

// groups keeps complete tallies until all of their group are complete.
type groups struct {
	held map[groupKey][]*tally
	// loose are groups on which members disagree: a member sent one of the tensors alone, or in another group. Nobody
	// can tell when such a group is complete, so no tensor waits for it.
	loose map[groupKey]bool
}

func newGroups() groups {
	return groups{held: make(map[groupKey][]*tally), loose: make(map[groupKey]bool)}
}

// add takes a complete tally and returns the tallies that can be answered now, in the order of their first Requests:
// none, or t alone, or all of its group.
func (g *groups) add(t *tally) []*tally {
	key, agreed := t.group()
	switch {
	case !agreed:
		return append(g.loosen(t), t)
	case key.name == "" || g.loose[key]:
		return []*tally{t}
	}
	t.held = true
	held := append(g.held[key], t)
	if len(held) < int(key.size) {
		g.held[key] = held
		return nil
	}
	delete(g.held, key)
	slices.SortFunc(held, bySeq)
	return held
}

// loosen gives up the groups that t's members name, and returns their held tallies.
func (g *groups) loosen(t *tally) []*tally {
	var held []*tally
	for _, r := range t.reqs {
		if r == nil || r.Group == "" {
			continue
		}
		key := groupKey{r.Group, r.GroupSize}
		g.loose[key] = true
		held = append(held, g.held[key]...)
		delete(g.held, key)
	}
	slices.SortFunc(held, bySeq)
	return held
}

// releaseAll returns all held tallies.
func (g *groups) releaseAll() []*tally {
	var all []*tally
	for _, held := range g.held {
		all = append(all, held...)
	}
	clear(g.held)
	slices.SortFunc(all, bySeq)
	return all
}

// group is the group of t, and whether its members agree on it.
func (t *tally) group() (key groupKey, agreed bool) {
	first := t.first()
	for _, r := range t.reqs {
		if r != nil && (r.Group != first.Group || r.GroupSize != first.GroupSize) {
			return groupKey{}, false
		}
	}
	return groupKey{first.Group, first.GroupSize}, true
}
