package roster

import "slices"

// Place is where a rank stands among the others.
type Place struct {
	Rank, Size int
	// LocalSize is 0 until it is known how many ranks this host has, and CrossSize until it
	// is known how the ranks lie on the hosts.
	LocalRank, LocalSize int
	CrossRank, CrossSize int
	// Host is this host's name, as messages have it.
	Host string
}

// Complete finds out what nobody has told of how the ranks lie on the hosts: hosts with their names are
// counted in the order of their first ranks, ranks on a host in their own.
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

// byName lists the ranks of each host, and those of one rank's.
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

// Homogeneous reports that all hosts have the same number of ranks. Where the ranks have not been told how
// many their host has, those of one name are counted.
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
