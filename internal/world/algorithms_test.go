package world

import (
	"testing"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/config"
)

// Of two names for one form the one that asks for it counts, then the one that
// forbids it, and silence only where both are silent.
func TestHintsOfTwoNames(t *testing.T) {
	for _, c := range []struct {
		allreduce, torus config.Hint
		want             collective.Hint
	}{
		{config.NoHint, config.NoHint, collective.ByModel},
		{config.No, config.NoHint, collective.Flat},
		{config.NoHint, config.No, collective.Flat},
		{config.No, config.Yes, collective.Hierarchical},
		{config.Yes, config.No, collective.Hierarchical},
	} {
		got := algorithms(&config.Config{HierarchicalAllreduce: c.allreduce, TorusAllreduce: c.torus})
		if got.Allreduce != c.want || got.Allgather != collective.ByModel {
			t.Errorf("%v, %v: %+v", c.allreduce, c.torus, got)
		}
	}
}
