//go:build cgo && linux

package nccl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// find returns the library of this process. If the process has loaded an NCCL, find returns that one or says why it is
// unfit. Otherwise find loads the first candidate that is fit.
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
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && file != soname {
			continue
		}
		var err error
		if file != soname { // A library that has been loaded would hide the next one, since their names are the same.
			err = judge(file, loaded)
		}
		if err == nil {
			var l *Library
			if l, err = load(file, loaded); err == nil {
				return l, nil
			}
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
	case strings.Contains(err.Error(), "libcuda.so"):
		return nil, fmt.Errorf("NCCL's library %s cannot be loaded, because it needs CUDA's driver (%w)", file, err)
	case file == soname:
		return nil, fmt.Errorf("NCCL's library %s cannot be loaded (%w): install PyTorch for CUDA, or the package "+
			"nvidia-nccl-cu12 or nvidia-nccl-cu13 for the CUDA of your framework", soname, err)
	}
	return nil, fmt.Errorf("NCCL's library %s cannot be loaded (%w): install its package again", file, err)
}

// inside takes the NCCL that was linked into PyTorch, if PyTorch exports its functions. No second NCCL is ever loaded
// beside it.
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

// check returns an open library, or says why it is unfit.
func check(handle unsafe.Pointer, path string, loaded []string) (*Library, error) {
	l, err := fit(handle, path)
	if err != nil {
		return nil, err
	}
	_, l.cuda = stamp(path)
	if err := l.suits(cuda.RuntimeMajor(loaded)); err != nil {
		return nil, err
	}
	return l, nil
}

// judge returns why a library is unfit, as far as its file tells, or nil. It does not load the library.
func judge(file string, loaded []string) error {
	defer cuda.Begin("a read", file)()
	if err := whole(file); err != nil {
		return fmt.Errorf("NCCL's library %s is damaged (%w): install its package again", file, err)
	}
	version, major := stamp(file)
	l := &Library{path: file, version: version, cuda: major}
	if version != 0 && !known(version) {
		return l.unfit()
	}
	if err := l.suits(cuda.RuntimeMajor(loaded)); err != nil {
		return err
	}
	if driver, newest, err := cuda.Present(); err == nil {
		return l.RunsOn(driver, newest)
	}
	return nil // there is no driver that could run any
}

// suits returns an error if the library was built for another CUDA than that of the framework, whose major version is
// runtime. Major versions do not mix. A version of 0 is unknown.
func (l *Library) suits(runtime int) error {
	if l.cuda == 0 || runtime == 0 || l.cuda == runtime {
		return nil
	}
	return fmt.Errorf("NCCL's library %s (%s) is built for CUDA %d, and this process uses CUDA %d: install the "+
		"package nvidia-nccl-cu%d, and remove the other", l.path, VersionText(l.version), l.cuda, runtime, runtime)
}
