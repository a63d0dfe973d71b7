package meet

import (
	"context"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/rendezvous"
)

// gate is where all ranks that meet by a launcher's library wait for one another. It does not tell for whom. So each
// rank that has come leaves a sign, the name of its own host, and asks for all signs when its time is over.
type gate struct {
	launchers string // "PMIx"
	name      string // "fence"
	advice    string // what the user may do, behind the question whether all call hvd.init()
}

// overdue is the error of a rank that has waited there so long. hosts are where the launcher has started the ranks, in
// its words, and signs what they have left, nil for those that have not come, empty where the name is not known; err
// says why there are no signs.
func (g gate) overdue(ctx context.Context, waited time.Duration, hosts []string, signs [][]byte, err error) error {
	return fmt.Errorf("waited %v for %s (do all call hvd.init()%s): %w", waited.Round(100*time.Millisecond),
		g.absent(hosts, signs, err), g.advice, context.Cause(ctx))
}

// absent says who has not come, as far as that can be found out.
func (g gate) absent(hosts []string, signs [][]byte, err error) string {
	if err != nil || len(signs) != len(hosts) {
		return fmt.Sprintf("some of %d ranks, and %s does not tell for which: %s", len(hosts), g.launchers,
			rendezvous.Places(hosts))
	}
	come, all := make([]bool, len(signs)), true
	for r, sign := range signs {
		come[r] = sign != nil
		all = all && come[r]
	}
	if all {
		return fmt.Sprintf("%s, whose %s has not ended although all %d ranks have come by now", g.launchers, g.name,
			len(signs))
	}
	return rendezvous.NotCome(come, rename(hosts, signs))
}

// rename gives the launcher's hosts the names that the ranks there have for them, if these agree: a launcher may call
// by an address what all other messages call by a name. It changes hosts.
func rename(hosts []string, signs [][]byte) []string {
	own := map[string]string{} // empty: they do not agree
	for r, sign := range signs {
		if len(sign) == 0 {
			continue
		}
		if name, known := own[hosts[r]]; !known {
			own[hosts[r]] = string(sign)
		} else if name != string(sign) {
			own[hosts[r]] = ""
		}
	}
	for r, sign := range signs {
		switch name := own[hosts[r]]; {
		case len(sign) > 0:
			hosts[r] = string(sign)
		case hosts[r] != "" && name != "":
			hosts[r] = name
		}
	}
	return hosts
}
