package bootstrap

import (
	"context"
	"log/slog"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/meet"
	"github.com/gorovod/gorovod/internal/joining/bootstrap/pmix"
)

// openPMIx opens the key-value space of the PMIx that has started this process. Open MPI's mpirun and the ranks' MPI
// come from one installation; srun's PMIx may come from another.
func (p *Process) openPMIx(ctx context.Context, c *config.Config, log *slog.Logger) (meet.KeyValues, error) {
	client, err := pmix.Open(ctx, pmix.Options{
		Namespace: c.Told.Place.PMIx, Rank: c.Told.Rank, Size: c.Told.Size,
		LaunchersVersion: c.Told.Place.Launcher == environment.OpenMPI, AtExit: p.EndsByExit,
	})
	if err != nil {
		log.Debug("PMIx is of no use here", "reason", err)
		return nil, err
	}
	log.Debug("the launcher speaks PMIx, and so does "+client.Version(), "rank", c.Told.Rank)
	return client, nil
}
