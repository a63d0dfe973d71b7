//go:build cgo && linux

package nccl

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/gorovod/gorovod/internal/gpu/cuda"
)

// find loads the library of this process: the one that it has already, whatever that is like; else the first that is
// fit.
func find() (*Library, error) {
	loaded := cuda.LoadedFiles()
	if handle, path, err := cuda.OpenLibrary(soname, true); err == nil {
		return check(handle, path, loaded)
	}
	if torch := among(loaded, "libtorch_cuda.so"); torch != "" {
		return inside(torch, loaded)
	}
	var reasons []error
	for _, file := range candidates(loaded) {
		if _, err := os.Stat(file); err != nil && file != soname {
			continue
		}
		l, err := load(file, loaded)
		if err == nil {
			return l, nil
		}
		reasons = append(reasons, err)
	}
	return nil, errors.Join(reasons...)
}

// load loads a library by path, or by name as the dynamic loader finds it.
func load(file string, loaded []string) (*Library, error) {
	handle, path, err := cuda.OpenLibrary(file, false)
	switch {
	case err == nil:
		return check(handle, path, loaded)
	case file == soname:
		return nil, fmt.Errorf("NCCL's library %s cannot be loaded (%w): install PyTorch for CUDA, or the package "+
			"nvidia-nccl-cu12 or nvidia-nccl-cu13 for the CUDA of your framework", soname, err)
	}
	return nil, fmt.Errorf("NCCL's library %s cannot be loaded (%w): install its package again", file, err)
}

// inside takes the NCCL that was linked into PyTorch, if others can call it. A second one beside it is never loaded.
func inside(torch string, loaded []string) (*Library, error) {
	handle, _, err := cuda.OpenLibrary(torch, true)
	if err == nil {
		var l *Library
		if l, err = fit(handle, torch); err == nil {
			return l, l.suits(cuda.RuntimeMajor(loaded))
		}
	}
	return nil, fmt.Errorf("this PyTorch (%s) has its NCCL inside, where gorovod cannot use it (%w), and a process "+
		"must not have two: install a PyTorch that loads %s, as those of PyPI do", torch, err, soname)
}

// check looks at an open library.
func check(handle unsafe.Pointer, path string, loaded []string) (*Library, error) {
	l, err := fit(handle, path)
	if err != nil {
		return nil, err
	}
	l.cuda = builtFor(path)
	if err := l.suits(cuda.RuntimeMajor(loaded)); err != nil {
		return nil, err
	}
	return l, nil
}

// suits says whether the library is of the framework's CUDA. Major versions do not mix; 0 is not known.
func (l *Library) suits(runtime int) error {
	if l.cuda == 0 || runtime == 0 || l.cuda == runtime {
		return nil
	}
	return fmt.Errorf("NCCL's library %s (%s) is built for CUDA %d, and this process uses CUDA %d: install the "+
		"package nvidia-nccl-cu%d, and remove the other", l.path, VersionText(l.version), l.cuda, runtime, runtime)
}
