package world

import (
	"slices"
)

// supposedHosts are the ranks by host, as far as names and machines tell: the
// same lists on all ranks, each ascending, in the order of their first ranks.
// Whether the ranks of a host can share memory is found out by trying. Ranks that
// were given different host names are on different hosts, wherever they are.
func (w *World) supposedHosts() [][]int {
	var hosts [][]int
	for r, m := range w.members {
		i := slices.IndexFunc(hosts, func(ranks []int) bool {
			other := w.members[ranks[0]]
			return other.Host == m.Host && other.Machine == m.Machine
		})
		if i < 0 {
			hosts = append(hosts, []int{r})
			continue
		}
		hosts[i] = append(hosts[i], r)
	}
	return hosts
}

// hostOf is the list that holds the rank.
func hostOf(hosts [][]int, rank int) []int {
	i := slices.IndexFunc(hosts, func(ranks []int) bool { return slices.Contains(ranks, rank) })
	return hosts[i]
}
