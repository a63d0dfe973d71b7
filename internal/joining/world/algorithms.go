package world

import (
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// algorithms translates the configuration of the collectives' algorithms.
func algorithms(c *config.Config) collective.Options {
	return collective.Options{
		Deterministic: c.Deterministic,
		Allreduce:     hint(c.HierarchicalAllreduce, c.TorusAllreduce),
		Allgather:     hint(c.HierarchicalAllgather),
	}
}

// hint combines several hints. Any Yes wins, otherwise any No.
func hint(hints ...config.Hint) collective.Hint {
	h := collective.ByModel
	for _, said := range hints {
		switch said {
		case config.Yes:
			return collective.Hierarchical
		case config.No:
			h = collective.Flat
		}
	}
	return h
}
