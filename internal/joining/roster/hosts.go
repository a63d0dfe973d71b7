package roster

import "slices"

// SupposedHosts lists the ranks of each host, by names and machines. The lists are the same on all ranks, each
// ascending, in the order of their first ranks. Only an attempt shows whether the ranks of a host can share memory.
// Ranks with different host names count as on different hosts.
func (members Members) SupposedHosts() [][]int {
	type place struct {
		host string
		Machine
	}
	var hosts [][]int
	number := make(map[place]int)
	for r, m := range members {
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

// HostOf returns the index of the list that holds the rank.
func HostOf(hosts [][]int, rank int) []int {
	i := slices.IndexFunc(hosts, func(ranks []int) bool { return slices.Contains(ranks, rank) })
	return hosts[i]
}
