package remote

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
)

// Answer answers a question for this host. key is the secret of this examination. It blocks for a bounded time.
func Answer(ctx context.Context, q *wire.Query, key []byte) (any, error) {
	switch q.What {
	case wire.InspectQuery:
		env := environment.Overlay(withoutSecrets(os.Environ()), q.Env)
		path, _, err := spawn.FindCommand(q.Python, environment.Get(env, "PATH"))
		if err != nil {
			path = q.Python // there is no such interpreter; doctor then reports none
		}
		facts := cluster.Inspect(ctx, path, env)
		facts.Asked, facts.Named = q.Python, q.Named
		return facts, nil
	case wire.TimeQuery:
		return time.Now(), nil
	case wire.ListenQuery:
		l, err := cluster.Listen(key)
		if err != nil {
			return nil, err
		}
		go l.Serve()
		return l.Port(), nil
	case wire.ProbeQuery:
		return cluster.Probe(ctx, key, q.Addresses)
	}
	return nil, fmt.Errorf("nobody knows how to %s", q.What)
}
