package nodes

import (
	"fmt"
	"io/fs"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/cgroup"
)

// maxSlots is the most processes that a node may run.
const maxSlots = 1 << 16

// gpuFile matches the name of a GPU's file in /dev.
var gpuFile = regexp.MustCompile(`^nvidia[0-9]+$`)

// device matches a device in CUDA_VISIBLE_DEVICES: its number, or the beginning of its UUID.
var device = regexp.MustCompile(`^([0-9]+|(GPU|MIG)-.+)$`)

// Count is how many processes a node may run. asked is a number, or says what to count: "gpu", "cpu", or "auto" for
// GPUs, if there are any, else CPUs. name is the option or the variable that has asked. root is the file system; getenv
// looks a variable up.
func Count(name, asked string, root fs.FS, getenv func(string) string) (int, error) {
	switch asked {
	case "gpu":
		if n := gpus(root, getenv); n > 0 {
			return n, nil
		}
		return 0, fmt.Errorf("%s gpu: this node has no GPU", name)
	case "cpu":
		return cpus(root), nil
	case "auto":
		if n := gpus(root, getenv); n > 0 {
			return n, nil
		}
		return cpus(root), nil
	}
	n, err := strconv.Atoi(asked)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%s %s: a number from 1 to %d, or auto, gpu or cpu is needed", name, strconv.Quote(asked),
			maxSlots)
	}
	return n, nil
}

// gpus counts the GPUs that this container was given.
func gpus(root fs.FS, getenv func(string) string) int {
	if list := getenv("CUDA_VISIBLE_DEVICES"); list != "" {
		return visible(list)
	}
	n := 0
	entries, _ := fs.ReadDir(root, "dev") // without /dev there are no GPUs
	for _, e := range entries {
		if gpuFile.MatchString(e.Name()) {
			n++
		}
	}
	return n
}

// visible counts the devices of a CUDA_VISIBLE_DEVICES as CUDA does: the list ends at the first entry that can be no
// device, such as -1 or none, and if an entry comes twice, no device is visible.
func visible(list string) int {
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if !device.MatchString(entry) {
			break
		}
		if entry[0] <= '9' { // 0 and 00 are the same device
			entry = strings.TrimLeft(entry, "0")
		}
		if seen[entry] {
			return 0
		}
		seen[entry] = true
	}
	return len(seen)
}

// cpus is how many CPUs this container may use at a time, at least 1. It is the container's limit, rounded down, so
// that no process has less than a CPU.
func cpus(root fs.FS) int {
	n := runtime.NumCPU()
	if limit := cgroup.Of(root).CPUs(); limit > 0 {
		n = min(n, max(1, int(limit)))
	}
	return n
}
