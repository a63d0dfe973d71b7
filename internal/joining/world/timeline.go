package world

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/observe/timeline"
)

// rankPlaceholder stands for the rank in the name of a timeline's file.
const rankPlaceholder = "{rank}"

// StartTimeline starts a timeline in the file at path: on rank 0 alone, or, if path has {rank}, on every rank, in one
// file each. gorovod trace merge can join these files.
func (w *World) StartTimeline(path string, markCycles bool) error {
	if !strings.Contains(path, rankPlaceholder) {
		if w.Place.Rank != 0 {
			return nil
		}
		w.Timeline.Identify(nil)
		return w.Timeline.Start(path, markCycles)
	}
	generation := w.start.Generation
	w.Timeline.Identify(&timeline.Identity{Rank: w.Place.Rank, Size: w.Place.Size, Host: w.Place.Host, Job: w.jobName(),
		Generation: generation})
	return w.Timeline.Start(strings.ReplaceAll(path, rankPlaceholder, rankName(w.Place.Rank, generation)), markCycles)
}

// jobName is the same on all ranks of this world, and differs from the names of other jobs. It reveals no address.
func (w *World) jobName() string {
	sum := sha256.Sum256([]byte(strings.Join(w.start.Peers, " ")))
	return hex.EncodeToString(sum[:8])
}

// rankName replaces {rank} in a file's name: the rank, and from a job's second world on the world's number, too, so
// that a later world does not replace the files of an earlier one.
func rankName(rank int, generation uint64) string {
	epoch, within := generation>>20, generation&(1<<20-1)
	switch {
	case epoch <= 1 && within <= 1:
		return fmt.Sprint(rank)
	case within <= 1:
		return fmt.Sprintf("%d-g%d", rank, epoch)
	case epoch == 0:
		return fmt.Sprintf("%d-g%d", rank, within)
	}
	return fmt.Sprintf("%d-g%d.%d", rank, epoch, within)
}
