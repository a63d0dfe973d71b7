package world

import (
	"testing"

	"github.com/gorovod/gorovod/internal/tensor"
)

// TestContractOverTLS runs every operation under TLS, on a few types: the bytes of all
// travel alike, but connections are handled in another way, and read by goroutines.
func TestContractOverTLS(t *testing.T) {
	asProcesses(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32}
	if raceDetector || testing.Short() {
		types = []tensor.DType{tensor.Float32}
	}
	for n, transports := range map[int][]string{2: {"tls"}, 3: {"tls", "tls on aab"}} {
		for _, transport := range transports {
			t.Run(transport, func(t *testing.T) {
				w, tried := joinAll(t, n, transport), new(cell)
				for _, dt := range types {
					for _, row := range rows {
						w.tryAll(row.name, row.steps(dt, n), tried)
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
}
