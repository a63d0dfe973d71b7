// Package frtrace writes the flight records of a job's ranks as PyTorch's flight recorder does, so that PyTorch's
// analyser (torchfrtrace, torch.distributed.flight_recorder.fr_trace) can read them: a folder with a pickle for each
// rank. The format is version 2.3, that of PyTorch 2.5; later analysers read it, too. This package writes pickles and
// never reads them.
//
// The analyser pairs the ranks' operations by number, because NCCL needs one order on all ranks. Ranks of gorovod pair
// operations by name, and may submit them in any order. So the numbers are those of the agreed order: see order.go.
package frtrace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/observe/flight"
)

// Prefix begins the names of the files; the rank follows. It is the value of the analyser's --prefix.
const Prefix = "rank_"

// formatVersion is the newest format that does not require the output sizes of an alltoall, which a waiting rank does
// not know.
const formatVersion = "2.3"

// mostRanks limits how much a damaged dump makes this program write.
const mostRanks = 1 << 16

// Save writes a file for each dump into dir, which must be new or empty. missing are the ranks without a dump: with
// any, the analyser needs its option --allow-incomplete-ranks.
func Save(dir string, dumps []*flight.Dump) (missing []int, err error) {
	dumps, missing, err = check(dumps)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if old, err := os.ReadDir(dir); err != nil {
		return nil, err
	} else if len(old) > 0 {
		return nil, fmt.Errorf("%s has files already, such as %s: fr_trace reads all files of a folder, so name a "+
			"new one", dir, old[0].Name())
	}
	for i, text := range files(dumps) {
		name := filepath.Join(dir, fmt.Sprint(Prefix, dumps[i].Rank))
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// check sorts the dumps by rank. They must belong to one world.
func check(dumps []*flight.Dump) (sorted []*flight.Dump, missing []int, err error) {
	if len(dumps) == 0 {
		return nil, nil, errors.New("there are no dumps")
	}
	sorted = slices.Clone(dumps)
	slices.SortFunc(sorted, func(a, b *flight.Dump) int { return a.Rank - b.Rank })
	first := sorted[0]
	if first.Size > mostRanks {
		return nil, nil, fmt.Errorf("a dump is of one of %d ranks; no job has that many", first.Size)
	}
	have := map[int]bool{}
	for i, d := range sorted {
		if d.Size != first.Size || d.Job != first.Job {
			return nil, nil, fmt.Errorf("the dumps are of several jobs or attempts, such as %s of %d ranks and %s of "+
				"%d: leave those of one", first.Who(), first.Size, d.Who(), d.Size)
		}
		if i > 0 && sorted[i-1].Rank == d.Rank {
			return nil, nil, fmt.Errorf("there are two dumps of a rank, %s and %s: leave one", sorted[i-1].Who(),
				d.Who())
		}
		have[d.Rank] = true
	}
	for r := range first.Size {
		if !have[r] {
			missing = append(missing, r)
		}
	}
	return sorted, missing, nil
}

// files are the pickles of the dumps, in their order.
func files(dumps []*flight.Dump) [][]byte {
	sets := members(dumps)
	entries := make([][]any, len(dumps))
	for _, op := range order(dumps) {
		for i, d := range dumps {
			if r := op.records[i]; r != nil || op.agreed && slices.Contains(sets[op.set], d.Rank) {
				entries[i] = append(entries[i], entry(op, r, d, len(entries[i]), len(sets[op.set])))
			}
		}
	}
	texts := make([][]byte, len(dumps))
	for i, d := range dumps {
		var groups, states []field
		for _, set := range setNumbers(sets) {
			if ranks := sets[set]; slices.Contains(ranks, d.Rank) {
				name, about := group(set)
				groups = append(groups, field{name, []field{{"name", name}, {"desc", about},
					{"ranks", "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]") + "]"}}})
				states = append(states, field{name, []field{}})
			}
		}
		texts[i] = pickled([]field{{"version", formatVersion}, {"pg_config", groups}, {"pg_status", states},
			{"entries", entries[i]}, {"host", d.Host}, {"pid", d.PID}})
	}
	return texts
}

// members are the ranks of each process set, as far as the dumps tell.
func members(dumps []*flight.Dump) map[int][]int {
	sets := map[int][]int{}
	for r := range dumps[0].Size {
		sets[0] = append(sets[0], r)
	}
	for _, d := range dumps {
		for set, ranks := range d.Sets {
			sets[set] = ranks
		}
	}
	for _, d := range dumps {
		for _, r := range d.Records { // the set has been removed since
			if known := sets[r.Set]; d.Sets[r.Set] == nil && !slices.Contains(known, d.Rank) {
				sets[r.Set] = append(slices.Clone(known), d.Rank)
			}
		}
	}
	return sets
}

func setNumbers(sets map[int][]int) (numbers []int) {
	for set := range sets {
		numbers = append(numbers, set)
	}
	slices.Sort(numbers)
	return numbers
}

// group is a process set's name and description.
func group(set int) (name, about string) {
	if set == 0 {
		return "0", "default_pg"
	}
	return fmt.Sprint(set), fmt.Sprintf("process set %d", set)
}
