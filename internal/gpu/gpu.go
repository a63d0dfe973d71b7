//go:build cgo && linux

// Package gpu says what this process has of CUDA and NCCL, and whether collectives can run on device memory.
package gpu

import (
	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/gpu/nccl"
)

// Find loads what is needed to run collectives on device memory. The error is a sentence that says what is missing or
// unfit, and what to do. It starts CUDA, which reads CUDA_VISIBLE_DEVICES then, but makes no context.
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

// NCCLVersion is the version code of the NCCL that collectives of this process can use, such as 21805, and 0 if they
// can use none. It loads the libraries, but does not start CUDA: the program may still choose its devices.
func NCCLVersion() int {
	if cuda.Present() != nil {
		return 0
	}
	library, err := nccl.Open()
	if err != nil {
		return 0
	}
	return library.Version()
}
