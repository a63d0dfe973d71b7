package nccl

import (
	"debug/elf"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const soname = "libnccl.so.2"

// packages is how the path of a file in a Python package begins.
var packages = regexp.MustCompile(`^(.*/(?:site|dist)-packages)/`)

// candidates are where NCCL may be: in the Python package nvidia-nccl-cu12 or -cu13, in each folder of packages that
// the process has loaded something from, and where the dynamic loader looks.
func candidates(loaded []string) []string {
	var all []string
	for _, file := range loaded {
		if m := packages.FindStringSubmatch(file); m != nil {
			if wheel := filepath.Join(m[1], "nvidia/nccl/lib", soname); !slices.Contains(all, wheel) {
				all = append(all, wheel)
			}
		}
	}
	return append(all, soname)
}

// among is the first of some files that is called so, or begins so: libraries have versions.
func among(files []string, name string) string {
	i := slices.IndexFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), name) })
	if i < 0 {
		return ""
	}
	return files[i]
}

// built is what NCCL writes into its log when it starts, and so has among its constants.
var built = regexp.MustCompile(`NCCL version \d[^\x00+]*\+cuda(\d+)\.\d+`)

// builtFor is the major version of CUDA that a library's file was built for, and 0 if it does not tell.
func builtFor(file string) int {
	f, err := elf.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	constants := f.Section(".rodata")
	if constants == nil || constants.Size > 64<<20 {
		return 0
	}
	data, err := constants.Data()
	if err != nil {
		return 0
	}
	m := built.FindSubmatch(data)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1]))
	return major
}
