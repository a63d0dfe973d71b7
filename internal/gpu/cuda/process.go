package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// LoadedFiles lists the files that this process has mapped: its libraries, above all. Nil where there is no /proc.
func LoadedFiles() []string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	return mappedFiles(string(maps))
}

// mappedFiles reads /proc/PID/maps: address, rights, offset, device, inode, and then the file's path with all its
// blanks.
func mappedFiles(maps string) (files []string) {
	for line := range strings.Lines(maps) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		file := strings.TrimSuffix(strings.TrimSuffix(line[at:], "\n"), " (deleted)")
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

var runtimeName = regexp.MustCompile(`^libcudart\.so\.(\d+)`)

// RuntimeMajor is the major version of CUDA's runtime that the program has loaded, which is its framework's; 0 if it
// has none.
func RuntimeMajor(loaded []string) int {
	for _, file := range loaded {
		if m := runtimeName.FindStringSubmatch(filepath.Base(file)); m != nil {
			major, _ := strconv.Atoi(m[1])
			return major
		}
	}
	return 0
}
