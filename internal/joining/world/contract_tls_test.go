package world

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// TestContractOverTLS runs every operation under TLS, on a few types: the bytes of all types travel alike, but under
// TLS goroutines read the connections.
func TestContractOverTLS(t *testing.T) {
	asProcesses(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32}
	if raceDetector || testing.Short() {
		types = []tensor.DType{tensor.Float32}
	}
	for _, c := range []struct {
		ranks     int
		transport string
	}{{2, "tls"}, {3, "tls"}, {3, "tls on aab"}} {
		t.Run(fmt.Sprintf("%d ranks over %s", c.ranks, c.transport), func(t *testing.T) {
			w, tried := joinAll(t, c.ranks, c.transport), new(cell)
			for _, dt := range types {
				for _, row := range rows {
					w.tryAll(row.name, row.steps(dt, c.ranks), tried)
				}
				w.tryJoin(dt, tried)
			}
			w.tryBarrier(tried)
			if tried.done == 0 {
				t.Error("nothing was done")
			}
		})
	}
}
