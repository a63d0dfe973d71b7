//go:build cgo && linux

// Package gpu finds the CUDA and the NCCL of this process, and says whether collectives can run on device memory.
package gpu

import (
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// Find loads the libraries that collectives on device memory need. The error is a sentence that says what is missing or
// unfit, and what to do. Find starts CUDA, which reads CUDA_VISIBLE_DEVICES at that time, but makes no context.
func Find() (*cuda.Driver, *nccl.Library, error) {
	driver, err := cuda.Open()
	if err != nil {
		return nil, nil, err
	}
	library, err := nccl.Open()
	if err != nil {
		return nil, nil, err
	}
	return driver, library, library.Runs(driver)
}

func ncclVersion(wish config.GPU) int {
	if wish == config.GPUStaged || wish == config.GPUOff {
		return 0
	}
	driver, newest, err := cuda.Present()
	if err != nil {
		return 0
	}
	library, err := nccl.Open()
	if err != nil || library.RunsOn(driver, newest) != nil {
		return 0
	}
	return library.Version()
}

// UsableNCCL is NCCLVersion for a process that may start CUDA: it also returns 0 if CUDA does not start, or sees no
// device.
func UsableNCCL(wish config.GPU, limit time.Duration) int {
	version := NCCLVersion(wish, limit)
	if version == 0 {
		return 0
	}
	if _, _, err := Find(); err != nil {
		return 0
	}
	return version
}
