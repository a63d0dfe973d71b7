package bench

import (
	"context"
	"io"
)

// Pythons are the interpreters of a run: this project's and upstream's.
type Pythons struct{ Ours, Upstream string }

// Tiny is a run of the smallest work there is.
func Tiny(ctx context.Context, np int, python Pythons, stderr io.Writer, peers ...string) (*Report, error) {
	minute := 60.0
	o := &options{Time: &minute, NumProc: np, Python: python.Ours, Horovod: python.Upstream, Peers: peers, MaxSize: 1,
		Mpicc: "mpicc", tiny: true}
	return o.measure(ctx, stderr)
}

// Files writes a report as the subcommand does.
func (r *Report) Files(json, table io.Writer) error {
	if err := r.writeJSON(json); err != nil {
		return err
	}
	return r.table(table)
}
