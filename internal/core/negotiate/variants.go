package negotiate

import (
	"strconv"
	"strings"
)

// Limits of a report. The longest value is a shape: 255 dimensions of 21 characters. So eight values and Horovod's text
// remain below maxErr.
const (
	maxValues = 8
	maxRanges = 16
)

// variants lists the values and the world ranks that gave them, like "(ranks 0-2, 5: float32; rank 3: float64)".
func (c *Coordinator) variants(reqs []*Request, show func(*Request) string) string {
	type group struct {
		value string
		ranks []int
	}
	var groups []*group
	byValue := make(map[string]*group)
	for m, r := range reqs {
		if r == nil {
			continue
		}
		value := show(r)
		g := byValue[value]
		if g == nil {
			g = &group{value: value}
			byValue[value] = g
			groups = append(groups, g)
		}
		g.ranks = append(g.ranks, c.members[m])
	}
	var b strings.Builder
	b.WriteByte('(')
	for i, g := range groups {
		if i > 0 {
			b.WriteString("; ")
		}
		if i == maxValues {
			b.WriteString("and " + strconv.Itoa(len(groups)-i) + " more")
			break
		}
		writeRanks(&b, g.ranks)
		b.WriteString(": " + g.value)
	}
	b.WriteByte(')')
	return b.String()
}

// writeRanks writes ascending ranks as "rank 3" or "ranks 0-2, 5".
func writeRanks(b *strings.Builder, ranks []int) {
	if len(ranks) == 1 {
		b.WriteString("rank " + strconv.Itoa(ranks[0]))
		return
	}
	b.WriteString("ranks ")
	writeList(b, ranks)
}

// writeList writes ascending ranks as "3" or "0-2, 5".
func writeList(b *strings.Builder, ranks []int) {
	for n := 0; len(ranks) > 0; n++ {
		if n > 0 {
			b.WriteString(", ")
		}
		if n == maxRanges {
			b.WriteString("and " + strconv.Itoa(len(ranks)) + " more")
			return
		}
		last := 0
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		b.WriteString(strconv.Itoa(ranks[0]))
		switch {
		case last == 1:
			b.WriteString(", " + strconv.Itoa(ranks[1]))
		case last > 1:
			b.WriteString("-" + strconv.Itoa(ranks[last]))
		}
		ranks = ranks[last+1:]
	}
}

// showRanks is "rank 3" or "ranks 0-2, 5".
func showRanks(ranks []int) string {
	var b strings.Builder
	writeRanks(&b, ranks)
	return b.String()
}
