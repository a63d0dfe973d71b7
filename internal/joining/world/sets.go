package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/engine"
)

// compareSets checks that all ranks were given the same process sets.
func (w *World) compareSets(ctx context.Context, sets [][]int) error {
	mine, err := json.Marshal(sets)
	if err != nil {
		return err
	}
	values, err := w.session.Exchange(ctx, "sets", mine)
	if err != nil {
		return err
	}
	for r, v := range values {
		if bytes.Equal(v, mine) {
			continue
		}
		var theirs [][]int
		if err := json.Unmarshal(v, &theirs); err != nil {
			return fmt.Errorf("the process sets of rank %d: %w", r, err)
		}
		if len(theirs) != len(sets) {
			return fmt.Errorf("the ranks were given mismatching numbers of process sets: %d on this rank, "+
				"%d on rank %d", len(sets), len(theirs), r)
		}
		for i := range sets {
			if len(theirs[i]) != len(sets[i]) {
				return fmt.Errorf("process set %d has a mismatching size on different ranks: %v on this rank, "+
					"%v on rank %d", i+1, sets[i], theirs[i], r)
			}
			if !slices.Equal(theirs[i], sets[i]) {
				return fmt.Errorf("process set %d has mismatching values on different ranks: %v on this rank, "+
					"%v on rank %d", i+1, sets[i], theirs[i], r)
			}
		}
	}
	return nil
}

// addSets registers the process sets given at the start. It leaves an existing set alone. The caller compares its sets
// with the existing ones.
func (w *World) addSets(sets [][]int) error {
	for i, ranks := range sets {
		if _, err := w.Engine.AddSet(ranks); err != nil && !errors.Is(err, engine.ErrSetExists) {
			return fmt.Errorf("process set %d: %w", i+1, err)
		}
	}
	return nil
}
