package environment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/lazyregexp"
)

// hostList is how a list of hosts begins: a name, or the beginning of one with numbers to follow, of which more may
// follow.
var hostList = lazyregexp.New(`^([^\[\],]+)(?:\[(\d[-,\d]*)\])?(?:,|$)`)

// hostNumbers is one part of such numbers: one, or a first and a last.
var hostNumbers = lazyregexp.New(`^(\d{1,9})(?:-(\d{1,9}))?$`)

// hostNames are node03, node04 and gpu1 of "node[03-04],gpu1", Slurm's way to write them; those before the first part
// that is of another form.
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
