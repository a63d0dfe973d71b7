//go:build cgo

package nccl

import (
	"path/filepath"
	"testing"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// The file of each real library tells the version that its ncclGetVersion tells.
func TestRealNCCLStamps(t *testing.T) {
	files, err := filepath.Glob("../../../build/nvidia/*/site-packages/nvidia/nccl/lib/" + soname)
	if err != nil || len(files) == 0 {
		t.Skip("NVIDIA's packages are not here; `make test-nvidia` gets them and runs this")
	}
	for _, file := range files {
		handle, path, err := cuda.OpenLibrary(file, false)
		if err != nil {
			t.Fatal(err)
		}
		l, err := fit(handle, path)
		if err != nil {
			t.Fatal(err)
		}
		if version, major := stamp(file); version != l.Version() || major == 0 {
			t.Errorf("%s tells %d and CUDA %d, and is %d", file, version, major, l.Version())
		}
	}
}
