package roster

import (
	"fmt"
	"slices"
	"strings"
)

// Claim is the part of a rank's place that Horovod's variables set; a size of 0 is not set. Values from another
// launcher, from MPI or from a default are not part of it. Programs choose GPUs and shards of data by these variables,
// so impossible claims are refused rather than passed on.
type Claim struct {
	LocalRank, LocalSize int
	CrossRank, CrossSize int
}

// CheckClaims returns an error for places that ranks on hosts of these names cannot have. All ranks get the same
// result. It checks only if all ranks have a claim.
//
// The ranks of one host name may form several groups, for example if several hosts have no name of their own, or one
// host stands for several. Each group of n ranks has LOCAL_SIZE n and the local ranks 0 to n-1. Across the groups,
// CROSS_RANK and CROSS_SIZE number the ranks of each local rank, or (with some launchers) the groups.
func (members Members) CheckClaims() error {
	if members.usualClaims() {
		return nil
	}
	for _, m := range members {
		if m.Claim.LocalSize == 0 {
			return nil
		}
	}
	byHost, hosts := make(map[string][]int), []string{}
	byLocal, locals := make(map[int][]int), []int{}
	across := true
	for r := range members {
		m := &members[r]
		if byHost[m.Host] == nil {
			hosts = append(hosts, m.Host)
		}
		byHost[m.Host] = append(byHost[m.Host], r)
		if byLocal[m.Claim.LocalRank] == nil {
			locals = append(locals, m.Claim.LocalRank)
		}
		byLocal[m.Claim.LocalRank] = append(byLocal[m.Claim.LocalRank], r)
		across = across && m.Claim.CrossSize > 0
	}
	local := func(r int) numbered { return numbered{members[r].Claim.LocalRank, members[r].Claim.LocalSize} }
	for _, host := range hosts {
		if ranks, size := oddOnes(byHost[host], local); ranks != nil {
			return fmt.Errorf("the ranks' places are impossible: on host %s HOROVOD_LOCAL_SIZE=%d is set for %s, so "+
				"there must be local ranks 0 to %d%s: %s", host, size, listPlaces(ranks, "HOROVOD_LOCAL_RANK", local),
				size-1, listOdder(byHost, hosts, ranks, local), placeAdvice)
		}
	}
	if !across {
		return nil
	}
	cross := func(r int) numbered { return numbered{members[r].Claim.CrossRank, members[r].Claim.CrossSize} }
	groups := count(byLocal[0], cross)
	slices.Sort(locals)
	for _, l := range locals {
		ranks, size := oddOnes(byLocal[l], cross)
		if ranks == nil || l > 0 && covers(groups, count(byLocal[l], cross)) {
			continue
		}
		return fmt.Errorf("the ranks' places are impossible: with HOROVOD_LOCAL_RANK=%d, HOROVOD_CROSS_SIZE=%d is "+
			"set for %s, so there must be cross ranks 0 to %d: %s", l, size, listPlaces(ranks, "HOROVOD_CROSS_RANK",
			cross), size-1, placeAdvice)
	}
	return nil
}

// usualClaims reports whether the places are those that horovodrun gives, host after host. Such claims are right, and
// in a large world this check is much cheaper than the full one.
func (members Members) usualClaims() bool {
	var across []int // by local rank: how many so far
	for r := 0; r < len(members); {
		host, size := members[r].Host, members[r].Claim.LocalSize
		if size < 1 || size > len(members)-r {
			return false
		}
		for l := range size {
			m := &members[r+l]
			if l == len(across) {
				across = append(across, 0)
			}
			if m.Host != host || m.Claim.LocalSize != size || m.Claim.LocalRank != l || m.Claim.CrossRank != across[l] {
				return false
			}
			across[l]++
		}
		r += size
	}
	return !slices.ContainsFunc(members, func(m Member) bool { return m.Claim.CrossSize != across[m.Claim.LocalRank] })
}

const placeAdvice = "correct what sets these variables, as horovodrun does (ranks of one HOROVOD_HOSTNAME are " +
	"on one host)"

// SharedPlace finds two ranks on one host with the same local rank, for example if every rank was told that it is
// alone. A program would give both the same GPU. This can be intended, if one host stands for several. b is 0 if there
// are no such ranks.
func (members Members) SharedPlace() (a, b int) {
	type at struct {
		host string
		Machine
		local int
	}
	first := make(map[at]int)
	for r := range members {
		m := &members[r]
		if m.Claim.LocalSize == 0 {
			continue
		}
		here := at{m.Host, m.Machine, m.Claim.LocalRank}
		if other, taken := first[here]; taken {
			return other, r
		}
		first[here] = r
	}
	return 0, 0
}

// numbered is a rank's number in a group, and the group's size.
type numbered struct{ number, size int }

func count(ranks []int, of func(rank int) numbered) map[numbered]int {
	n := make(map[numbered]int, len(ranks))
	for _, r := range ranks {
		n[of(r)]++
	}
	return n
}

// oddOnes returns nil if the ranks can be put into groups in which each has its number. Otherwise it returns the ranks
// that claim the size of the impossible group.
func oddOnes(ranks []int, of func(rank int) numbered) (odd []int, size int) {
	counts := count(ranks, of)
	total := make(map[int]int) // by size: how many ranks
	for at, n := range counts {
		total[at.size] += n
	}
	for _, r := range ranks {
		at := of(r)
		if total[at.size] == counts[at]*at.size {
			continue // as many with this number as with each other one, if that holds for all
		}
		for _, other := range ranks {
			if of(other).size == at.size {
				odd = append(odd, other)
			}
		}
		return odd, at.size
	}
	return nil, 0
}

// listOdder names the other odd ranks: one of them may have the number that is missing among ranks.
func listOdder(byHost map[string][]int, hosts []string, besides []int, local func(rank int) numbered) string {
	var list []string
	for _, host := range hosts {
		rest := slices.Clone(byHost[host])
		for {
			odd, size := oddOnes(rest, local)
			if odd == nil {
				break
			}
			if odd[0] != besides[0] {
				list = append(list, fmt.Sprintf("%s on host %s with HOROVOD_LOCAL_SIZE=%d",
					listPlaces(odd, "HOROVOD_LOCAL_RANK", local), host, size))
			}
			rest = slices.DeleteFunc(rest, func(r int) bool { return local(r).size == size })
		}
	}
	switch {
	case list == nil:
		return ""
	case len(list) > maxListed:
		list = append(list[:maxListed], "and more")
	}
	return "; ranks are also missing beside " + strings.Join(list, ", ")
}

// covers reports whether each number has at least as many ranks in all as in part.
func covers(all, part map[numbered]int) bool {
	for at, n := range part {
		if n > all[at] {
			return false
		}
	}
	return true
}

// maxListed is how many ranks an error lists.
const maxListed = 16

// listPlaces names ranks with their numbers: "rank 0 (NAME=0), rank 1 (NAME=0)".
func listPlaces(ranks []int, name string, of func(rank int) numbered) string {
	var list []string
	for _, r := range ranks[:min(len(ranks), maxListed)] {
		list = append(list, fmt.Sprintf("rank %d (%s=%d)", r, name, of(r).number))
	}
	text := strings.Join(list, ", ")
	if more := len(ranks) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
