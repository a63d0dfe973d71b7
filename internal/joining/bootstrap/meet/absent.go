package meet

import (
	"context"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// gate is a barrier of a launcher's library, at which the ranks meet. The barrier does not tell for which ranks it
// waits. So each rank that has come leaves a sign, the name of its own host, and asks for all signs when its time is
// over.
type gate struct {
	launchers string // "PMIx"
	name      string // "fence"
	advice    string // what the user may do, after the question whether all call hvd.init()
}

// overdue is the error of a rank that has waited that long at the barrier. hosts are the ranks' hosts in the
// launcher's words. signs are the ranks' signs: nil from ranks that have not come, empty if the name is not known. err
// says why there are no signs.
func (g gate) overdue(ctx context.Context, waited time.Duration, hosts []string, signs [][]byte, err error) error {
	return fmt.Errorf("waited %v for %s (do all call hvd.init()%s): %w", waited.Round(100*time.Millisecond),
		g.absent(hosts, signs, err), g.advice, context.Cause(ctx))
}

// absent names the ranks that have not come, as far as known.
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

// rename replaces the launcher's host names by those that the ranks there use, if these agree: a launcher may name a
// host by an address that no other message uses. It changes hosts.
func rename(hosts []string, signs [][]byte) []string {
	own := map[string]string{} // empty: the ranks there do not agree
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
