package job

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/tools/progress"
)

const (
	// largeJob is the number of ranks from which on the launcher reports the start even without --verbose and a
	// terminal.
	largeJob = 16
	// mostAwaited is how many hosts the line names at most.
	mostAwaited = 4
)

// openProgress makes the line that tells people how many ranks the job still waits for. Call it before the printers are
// made, because their lines push the line aside.
func (j *Job) openProgress() {
	var terminal io.Writer
	if logging.InUse() != logging.JSON {
		terminal = j.Stderr
	}
	j.progress = progress.New(terminal, func(text string) {
		if j.Verbose || j.large.Load() {
			j.log(slog.LevelInfo, "%s", text)
		}
	})
}

// awaitRanks shows how many of a world's size ranks have joined at s, until all have.
func (j *Job) awaitRanks(s *rendezvous.Server, size int) {
	j.large.Store(size >= largeJob)
	again := j.worlds.Load() > 1
	j.progress.Wait(func() (text string, waiting bool) {
		away := s.Awaited()
		missing := 0
		for _, n := range away {
			missing += n
		}
		if missing == 0 {
			return "", false
		}
		text = fmt.Sprintf("%d of %d ranks have joined", size-missing, size)
		if again {
			text = "the job is formed anew: " + text
		}
		return text + awaited(away), true
	})
}

// awaited names the hosts of missing ranks, those with the most missing ranks first.
func awaited(away map[string]int) string {
	hosts := slices.SortedFunc(maps.Keys(away), func(a, b string) int {
		if away[a] != away[b] {
			return away[b] - away[a]
		}
		return strings.Compare(a, b)
	})
	var words []string
	for i, h := range hosts {
		switch {
		case i == mostAwaited:
			return "; missing: " + strings.Join(words, ", ") + fmt.Sprintf(", and on %d more hosts", len(hosts)-i)
		case h == "":
			words = append(words, fmt.Sprintf("%d not started", away[h]))
		default:
			words = append(words, fmt.Sprintf("%d on %s", away[h], h))
		}
	}
	return "; missing: " + strings.Join(words, ", ")
}

// awaitHosts shows to how many hosts the launcher is connected.
func (j *Job) awaitHosts(c *remote.Calls, hosts int) {
	j.progress.Wait(func() (string, bool) {
		return fmt.Sprintf("connected to %d of %d hosts", c.Made.Load(), hosts), true
	})
}
