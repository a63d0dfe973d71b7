package nccl

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const soname = "libnccl.so.2"

// packages matches the beginning of the path of a file in a Python package.
var packages = regexp.MustCompile(`^(.*/(?:site|dist)-packages)/`)

// candidates returns the files that may be NCCL: that of the Python package nvidia-nccl-cu12 or -cu13, in each folder
// of packages from which the process has loaded a file, and those of the dynamic loader's path. If there are none in
// that path, the last candidate is the name, for the loader's own folders.
func candidates(loaded []string) []string {
	var all []string
	for _, file := range loaded {
		if m := packages.FindStringSubmatch(file); m != nil {
			if wheel := filepath.Join(m[1], "nvidia/nccl/lib", soname); !slices.Contains(all, wheel) {
				all = append(all, wheel)
			}
		}
	}
	none := true
	between := func(c rune) bool { return c == ':' || c == ';' }
	for _, folder := range strings.FieldsFunc(os.Getenv("LD_LIBRARY_PATH"), between) {
		file := filepath.Join(folder, soname)
		if _, err := os.Stat(file); err != nil || foreign(file) {
			continue
		}
		if none = false; !slices.Contains(all, file) {
			all = append(all, file)
		}
	}
	if none {
		all = append(all, soname)
	}
	return all
}

// foreign reports whether a file is a library for other machines, which the loader passes over.
func foreign(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	own := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	return own != 0 && f.Machine != own
}

// among returns the first file whose name begins with name, because a version may follow. It returns "" if there is
// none.
func among(files []string, name string) string {
	i := slices.IndexFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), name) })
	if i < 0 {
		return ""
	}
	return files[i]
}

// built matches the line that NCCL logs when it starts. The line is among the constants of NCCL's file.
var built = regexp.MustCompile(`NCCL version (\d+)\.(\d+)(?:\.(\d+))?[^\x00+]*\+cuda(\d+)\.\d+`)

// stamp returns the version code of the NCCL in a file, and the major version of CUDA that it was built for, without
// loading it. What the file does not tell is 0.
func stamp(file string) (version, cuda int) {
	f, err := elf.Open(file)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	constants := f.Section(".rodata")
	if constants == nil || constants.Size > 64<<20 {
		return 0, 0
	}
	data, err := constants.Data()
	if err != nil {
		return 0, 0
	}
	m := built.FindSubmatch(data)
	if m == nil {
		return 0, 0
	}
	var numbers [4]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(string(m[i+1])) // the last part of a version may be missing
	}
	return versionCode(numbers[0], numbers[1], numbers[2]), numbers[3]
}

// whole returns an error if a file is no library, or has been cut short: the dynamic loader would end the process.
func whole(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file, but a folder or a pipe") // of which a read would not end
	}
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("it is no whole library: %w", err)
	}
	defer f.Close()
	for _, part := range f.Progs {
		if part.Type == elf.PT_LOAD && part.Off+part.Filesz > uint64(info.Size()) {
			return fmt.Errorf("it is no whole library: it has %d bytes of %d", info.Size(), part.Off+part.Filesz)
		}
	}
	return nil
}
