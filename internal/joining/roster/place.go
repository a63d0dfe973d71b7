package roster

import "slices"

// Place is a rank's place among the others.
type Place struct {
	Rank, Size int
	// LocalSize is 0 until the number of ranks on this host is known, and CrossSize is 0 until the ranks' hosts are
	// known.
	LocalRank, LocalSize int
	CrossRank, CrossSize int
	// Host is this host's name in messages.
	Host string
}

// Complete fills in the local and cross ranks and sizes that are not set. It numbers the host names by their first
// ranks, and the ranks on a host by their own.
func (p *Place) Complete(names []string) {
	hosts, mine := byName(names, p.Rank)
	if p.LocalSize == 0 {
		p.LocalRank, p.LocalSize = slices.Index(mine, p.Rank), len(mine)
	}
	if p.CrossSize == 0 {
		across := slices.DeleteFunc(hosts, func(ranks []int) bool { return len(ranks) <= p.LocalRank })
		p.CrossSize = max(1, len(across))
		p.CrossRank = max(0, slices.IndexFunc(across, func(ranks []int) bool { return ranks[0] == mine[0] }))
	}
}

// byName lists the ranks of each host, and the ranks of rank's host.
func byName(names []string, rank int) (hosts [][]int, its []int) {
	number := make(map[string]int)
	for r, name := range names {
		i, known := number[name]
		if !known {
			i = len(hosts)
			number[name] = i
			hosts = append(hosts, nil)
		}
		hosts[i] = append(hosts[i], r)
	}
	return hosts, hosts[number[names[rank]]]
}

// Names are the names of the ranks' hosts.
func (members Members) Names() []string {
	names := make([]string, len(members))
	for r := range members {
		names[r] = members[r].Host
	}
	return names
}

// Homogeneous reports whether all hosts have the same number of ranks. If the ranks have no LocalSize, it counts the
// ranks of each host name.
func (members Members) Homogeneous() bool {
	count := make(map[string]int)
	for r := range members {
		count[members[r].Host]++
	}
	size := func(m *Member) int {
		if m.LocalSize == 0 {
			return count[m.Host]
		}
		return m.LocalSize
	}
	for r := range members {
		if size(&members[r]) != size(&members[0]) {
			return false
		}
	}
	return true
}
