package world

import (
	"slices"
)

// supposedHosts are the ranks by host, as far as names and machines tell: the
// same lists on all ranks, each ascending, in the order of their first ranks.
// Whether the ranks of a host can share memory is found out by trying. Ranks that
// were given different host names are on different hosts, wherever they are.
func (w *World) supposedHosts() [][]int {
	type place struct {
		host string
		machine
	}
	var hosts [][]int
	number := make(map[place]int)
	for r, m := range w.members {
		at := place{m.Host, m.Machine}
		i, known := number[at]
		if !known {
			number[at] = len(hosts)
			hosts = append(hosts, []int{r})
			continue
		}
		hosts[i] = append(hosts[i], r)
	}
	return hosts
}

// settle finds out how the ranks lie on the hosts: whether all hosts have equally many,
// and, where another launcher has started them, what it has not told.
func (w *World) settle() {
	c := w.Config
	byHost := make(map[string][]int)
	var hosts [][]int
	for r, m := range w.members {
		byHost[m.Host] = append(byHost[m.Host], r)
	}
	for r, m := range w.members {
		if ranks := byHost[m.Host]; ranks[0] == r {
			hosts = append(hosts, ranks)
		}
	}
	if c.StartedByOthers() {
		for r := range w.members {
			w.members[r].LocalSize = len(byHost[w.members[r].Host])
		}
		mine := byHost[c.Hostname]
		if c.Place.LocalSize == 0 {
			c.LocalRank, c.LocalSize = slices.Index(mine, c.Rank), len(mine)
		}
		if c.Place.CrossSize == 0 {
			across := slices.DeleteFunc(hosts, func(ranks []int) bool { return len(ranks) <= c.LocalRank })
			c.CrossSize = max(1, len(across))
			c.CrossRank = max(0, slices.IndexFunc(across, func(ranks []int) bool { return ranks[0] == mine[0] }))
		}
	}
	for _, m := range w.members {
		if m.LocalSize != w.members[0].LocalSize {
			w.Homogeneous = false
		}
	}
}

// hostOf is the list that holds the rank.
func hostOf(hosts [][]int, rank int) []int {
	i := slices.IndexFunc(hosts, func(ranks []int) bool { return slices.Contains(ranks, rank) })
	return hosts[i]
}
