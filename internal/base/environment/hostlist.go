package environment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

// hostList matches the first part of a list of hosts: a name, or the beginning of a name with numbers in brackets. More
// parts may follow.
var hostList = lazyregexp.New(`^([^\[\],]+)(?:\[(\d[-,\d]*)\])?(?:,|$)`)

// hostNumbers matches one part of such numbers: a number, or a first and a last one.
var hostNumbers = lazyregexp.New(`^(\d{1,9})(?:-(\d{1,9}))?$`)

// hostNames returns the names in Slurm's notation: node03, node04 and gpu1 of "node[03-04],gpu1". It stops at the first
// part of another form.
func hostNames(list string) (names []string) {
	for {
		m := hostList().FindStringSubmatch(list)
		if m == nil {
			return names
		}
		list = list[len(m[0]):]
		if m[2] == "" {
			names = append(names, m[1])
			continue
		}
		for _, part := range strings.Split(m[2], ",") {
			n := hostNumbers().FindStringSubmatch(part)
			if n == nil {
				return names
			}
			first, _ := strconv.Atoi(n[1])
			last := first
			if n[2] != "" {
				last, _ = strconv.Atoi(n[2])
			}
			if last < first || last-first >= maxRanks-len(names) {
				return names
			}
			for i := first; i <= last; i++ {
				names = append(names, fmt.Sprintf("%s%0*d", m[1], len(n[1]), i))
			}
		}
	}
}
