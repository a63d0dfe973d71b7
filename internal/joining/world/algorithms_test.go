package world

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// If two variables name one form, a Yes of either counts first, then a No. Only if neither is set does the model
// decide.
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
