package negotiate

import "slices"

// groupKey names a group. Members that disagree about the size mean different groups.
type groupKey struct {
	name string
	size int32
}

// group is what t belongs to as far as its first member to say so has it; the
// others are compared with it when t is answered.
func (t *tally) group() groupKey {
	for _, r := range t.reqs {
		if r != nil && r.Group != "" {
			return groupKey{r.Group, r.GroupSize}
		}
	}
	return groupKey{}
}

// hold keeps a complete tally until all of its group are complete. A tally
// whose members disagree is kept like the others, so that it fails alone.
func (c *Coordinator) hold(t *tally, key groupKey) {
	t.held = true
	held := append(c.groups[key], t)
	if len(held) < int(key.size) {
		c.groups[key] = held
		return
	}
	delete(c.groups, key)
	c.release(held)
}

// release answers what was held, in the order of the first Requests.
func (c *Coordinator) release(held []*tally) {
	slices.SortFunc(held, bySeq)
	for _, t := range held {
		c.answer(t)
	}
}
