package negotiate

import "slices"

// processSetIDs gives process sets their ids: first those of removed sets, in the order of their removal, then new
// ones. Id 0 is the world.
type processSetIDs struct {
	last  int32   // the largest id ever given
	freed []int32 // ids that are free again
}

func (p *processSetIDs) take() int32 {
	if len(p.freed) == 0 {
		p.last++
		return p.last
	}
	id := p.freed[0]
	p.freed = slices.Delete(p.freed, 0, 1)
	return id
}

// live reports whether a set has the id.
func (p *processSetIDs) live(id int32) bool {
	return id > 0 && id <= p.last && !slices.Contains(p.freed, id)
}

func (p *processSetIDs) free(id int32) { p.freed = append(p.freed, id) }
