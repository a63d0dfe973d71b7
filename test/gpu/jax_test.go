//go:build linux

package gpu

import (
	"path/filepath"
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
