package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// LoadedFiles lists the files that this process has mapped, among them its libraries. It returns nil if there is no
// /proc.
func LoadedFiles() []string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	return mappedFiles(string(maps))
}

// mappedFiles parses the text of /proc/PID/maps. A line has address, rights, offset, device, inode, and then the file's
// path, which may have blanks.
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

// RuntimeMajor returns the major version of CUDA's runtime that the program's framework has loaded, or 0 if it has
// loaded none.
func RuntimeMajor(loaded []string) int {
	for _, file := range loaded {
		if m := runtimeName.FindStringSubmatch(filepath.Base(file)); m != nil {
			major, _ := strconv.Atoi(m[1])
			return major
		}
	}
	return 0
}
