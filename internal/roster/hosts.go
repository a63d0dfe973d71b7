package roster

import "slices"

// SupposedHosts are the ranks by host, as far as names and machines tell: the
// same lists on all ranks, each ascending, in the order of their first ranks.
// Whether the ranks of a host can share memory is found out by trying. Ranks that
// were given different host names are on different hosts, wherever they are.
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

// HostOf is the list that holds the rank.
func HostOf(hosts [][]int, rank int) []int {
	i := slices.IndexFunc(hosts, func(ranks []int) bool { return slices.Contains(ranks, rank) })
	return hosts[i]
}
