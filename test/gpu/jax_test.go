//go:build cgo && linux

package gpu

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestJAX runs programs in C that call libgorovod_jax.so's handlers for CUDA as XLA does.
func TestJAX(t *testing.T) {
	program := programPath(t, "jax")
	shim := "JAX_SHIM_FOLDER=" + filepath.Dir(builtPath(t, "libgorovod_jax.so"))
	async := "HOROVOD_ENABLE_ASYNC_COMPLETION=1"
	for _, c := range []libraryCase{
		{name: "nccl", ranks: 2, args: []string{"nccl"}, env: []string{"GOROVOD_GPU=nccl"}},
		{name: "auto", ranks: 3, args: []string{"nccl"}},
		{name: "async", ranks: 2, args: []string{"nccl"}, env: []string{async}},
		{name: "one rank", ranks: 1, args: []string{"nccl"}},
		{name: "staged", ranks: 2, args: []string{"staged"}, env: []string{"GOROVOD_GPU=staged"}},
		{name: "staged async", ranks: 2, args: []string{"staged"}, env: []string{"GOROVOD_GPU=staged", async}},
		{name: "old nccl", ranks: 2, args: []string{"staged"}, env: []string{"STANDIN_NCCL_VERSION=21005"}},
		{name: "one device for all", ranks: 2, args: []string{"staged"}, env: []string{"LIBRARY_DEVICE=0"}},
		{name: "off", ranks: 2, args: []string{"off"}, env: []string{"GOROVOD_GPU=off"}},
		{name: "errors", ranks: 2, args: []string{"errors"}},
		{name: "dies", ranks: 2, args: []string{"dies"}, says: "rank 1 survived", fails: true},
	} {
		c.env = append(c.env, shim)
		t.Run(c.name, func(t *testing.T) { c.run(t, program) })
	}
}

// TestDroppedWaitsOfJAX leaves out one call on rank 0, like TestDroppedWaits: of a wait, of a record of an event, or of
// a query of an event. The stand-in must report a race, with any timing.
func TestDroppedWaitsOfJAX(t *testing.T) {
	program := programPath(t, "jax")
	shim := "JAX_SHIM_FOLDER=" + filepath.Dir(builtPath(t, "libgorovod_jax.so"))
	dice := rand.New(rand.NewPCG(*seed, 4))
	for _, how := range []struct {
		env   []string
		calls map[string][]int // by their numbers
	}{
		// XLA's stream needs to wait only where operations end before the device has done them. Otherwise each second
		// wait is for an event that has been reached.
		{[]string{"GOROVOD_GPU=nccl"}, map[string][]int{"cuStreamWaitEvent": {1, 3, 5}, "cuEventRecord": upTo(6),
			"cuEventQuery": upTo(3)}},
		{[]string{"GOROVOD_GPU=staged"}, map[string][]int{"cuStreamWaitEvent": {1, 3, 5}, "cuEventRecord": upTo(9),
			"cuEventQuery": upTo(6)}},
		// The second of an operation's three records is of the lane's event, for which only other process sets wait.
		{[]string{"GOROVOD_GPU=nccl", "HOROVOD_ENABLE_ASYNC_COMPLETION=1"}, map[string][]int{
			"cuStreamWaitEvent": upTo(6), "cuEventRecord": {1, 3, 4, 6, 7, 9}}},
	} {
		for _, function := range slices.Sorted(maps.Keys(how.calls)) {
			calls := how.calls[function]
			chosen := calls[dice.IntN(len(calls))]
			for _, k := range calls {
				if !*every && k != chosen {
					continue
				}
				t.Run(fmt.Sprintf("%v %d of %s", how.env, k, function), func(t *testing.T) {
					t.Parallel()
					c := libraryCase{ranks: 2, args: []string{"waits", fmt.Sprintf("%s:%d:skip", function, k)},
						env: append(slices.Clip(how.env), shim)}
					out, report, err := c.start(t, program)
					if err == nil || !strings.Contains(report, "race: ") {
						t.Errorf("%v, and no race is reported\n%s%s", err, report, out)
					}
				})
			}
		}
	}
}
