package rendezvous

import (
	"fmt"
	"slices"
	"strings"
)

// NotCome describes, for a message, which ranks have come and which have not, for ranks that do not meet at a server.
// come and hosts are by rank, and equally long. A host is empty if it is not known. At least one rank has not come.
func NotCome(come []bool, hosts []string) string {
	var a absence
	for r, here := range come {
		if here {
			a.there = append(a.there, r)
		} else {
			a.away = append(a.away, r)
		}
	}
	a.host = func(r int) string { return hosts[r] }
	a.stage = func(r int) string {
		if hosts[r] == "" {
			return nowhere
		}
		return placed(hosts[r])
	}
	a.whereabouts = func(r int) string {
		if hosts[r] == "" {
			return "not heard of"
		}
		return "not heard of, started on host " + hosts[r]
	}
	return a.String()
}

// Places lists which ranks are on which hosts, also unknown ones.
func Places(hosts []string) string {
	ranks := make([]int, len(hosts))
	for r := range ranks {
		ranks[r] = r
	}
	return byHost(ranks, func(r int) string { return on(hosts[r]) })
}

// absence is the server's knowledge while some ranks wait for others.
type absence struct {
	there, away []int                 // ascending
	host        func(rank int) string // of a rank that is there; empty if unknown
	// stage and whereabouts say where a missing rank is, and how far it has come. stage is short, for many ranks; it is
	// nowhere if nothing is known of the rank.
	stage, whereabouts func(rank int) string
}

// String lists the missing ranks, and those that are there.
func (a absence) String() string {
	size := len(a.there) + len(a.away)
	who := are(a.there) + " there"
	if slices.ContainsFunc(a.away, func(r int) bool { return a.stage(r) == nowhere }) {
		// The host of the missing rank is not known here. The reader may guess it from the others.
		who += ": " + byHost(a.there, func(r int) string { return on(a.host(r)) })
	}
	const most = 8
	if len(a.away) > most {
		return fmt.Sprintf("%d of %d ranks: %s; %s", len(a.away), size, byHost(a.away, a.stage), who)
	}
	var parts []string
	for _, r := range a.away {
		parts = append(parts, fmt.Sprintf("rank %d of %d (%s)", r, size, a.whereabouts(r)))
	}
	return fmt.Sprintf("%s; %s", strings.Join(parts, ", "), who)
}

// nowhere is the stage of an unknown rank: another launcher than horovodrun has started it, or it was not started.
const nowhere = "(not heard of)"

// placed is the stage of a rank that only its launcher knows.
func placed(host string) string { return fmt.Sprintf("on host %s (started, but not heard of)", host) }

func on(host string) string {
	if host == "" {
		return "on a host that is not known"
	}
	return "on host " + host
}

// maxGroups is the most hosts that a message lists.
const maxGroups = 32

// byHost lists many ranks. It groups ranks that have the same host and stage.
func byHost(ranks []int, say func(rank int) string) string {
	members := map[string][]int{}
	var groups []string
	for _, r := range ranks {
		what := say(r)
		if members[what] == nil {
			groups = append(groups, what)
		}
		members[what] = append(members[what], r)
	}
	var parts []string
	for i, what := range groups {
		if i == maxGroups {
			parts = append(parts, fmt.Sprintf("and those of %d more hosts", len(groups)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s", ranges(members[what]), what))
	}
	return strings.Join(parts, "; ")
}

// are returns "ranks 0, 1, 4-9 are", with runs of ranks shortened.
func are(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d is", ranks[0])
	}
	return fmt.Sprintf("ranks %s are", ranges(ranks))
}

// ranges returns "0, 1, 4-9", with runs of ranks shortened.
func ranges(ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j-i >= 4 {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		} else {
			for k := i; k <= j; k++ {
				parts = append(parts, fmt.Sprint(ranks[k]))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
