package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/elastic/checkpoint"
)

// The sparse tables of an elastic job are saved beside the checkpoints, at each commit:
//
//	GOROVOD_CHECKPOINT_DIR/tables/NAME-NUMBER/COMMITS.PART/    a save, as package tablefile has it
//
// COMMITS is how many commits the job has made with this one. PART counts what the job keeps in addition before the
// next commit, because its ranks change.

// CommitTable saves a table for a commit. All ranks call it, and it blocks until the disk has all. It removes saves
// that neither a rank nor a checkpoint needs: a rank may hold the state of the commit before.
func CommitTable(t *engine.Table, number int64, part int) *engine.Error {
	dir, failed := tableDir(t)
	if failed != nil {
		return failed
	}
	if failed := t.Save(filepath.Join(dir, tableSave(number, part))); failed != nil {
		return failed
	}
	if w := World(); w != nil && w.Place.Rank == 0 {
		pruneTables(dir, number)
	}
	return nil
}

// RestoreTable loads what CommitTable has saved. All ranks call it.
func RestoreTable(t *engine.Table, number int64, part int) *engine.Error {
	dir, failed := tableDir(t)
	if failed != nil {
		return failed
	}
	return t.Load(filepath.Join(dir, tableSave(number, part)))
}

// tableSave is the name of a save. Numbers of commits begin at 0, and -1 is before the first one.
func tableSave(number int64, part int) string { return fmt.Sprintf("%019d.%d", number+1, part) }

// tableDir is the directory with all saves of a table.
func tableDir(t *engine.Table) (string, *engine.Error) {
	dir, _ := checkpointDir()
	if dir == "" {
		return "", &engine.Error{Code: engine.InvalidArgument, Reason: fmt.Sprintf("table %q cannot be committed: set "+
			"GOROVOD_CHECKPOINT_DIR to a directory that all hosts share, before hvd.init()", t.Options().Name)}
	}
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '-'
	}, t.Options().Name)
	return filepath.Join(dir, "tables", fmt.Sprintf("%.100s-%08x", readable, t.Number())), nil
}

// pruneTables removes the saves of a table that commit number has made needless.
func pruneTables(dir string, number int64) {
	root, _ := checkpointDir()
	needed := checkpoint.Numbers(root)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		var commits int64
		var part int
		if n, err := fmt.Sscanf(e.Name(), "%d.%d", &commits, &part); n != 2 || err != nil ||
			e.Name() != tableSave(commits-1, part) || commits-1 >= number-1 || slices.Contains(needed, commits-1) {
			continue
		}
		_ = os.RemoveAll(filepath.Join(dir, e.Name())) // what stays needs space, and nothing else
	}
}
