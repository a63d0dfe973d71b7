package bench

import (
	"bufio"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/cachesize"
	"github.com/gorovod/gorovod/internal/base/load"
)

// Machine is the machine on which a run took place.
type Machine struct {
	Host   string `json:"host"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`  // of the machine
	Usable int    `json:"usable"` // usable by this process, by affinity and cgroup
	Kernel string `json:"kernel"`
	Cache  int    `json:"last_cache_bytes"`
	// The load averages of the last minute, at the beginning and at the end. The second one includes the run's own
	// load.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// Others is how many cores other programs used, on average over the looks between rounds.
	Others float64 `json:"others"`
	// Environment are the set variables of Horovod and gorovod.
	Environment []string `json:"environment,omitempty"`
}

func thisMachine() Machine {
	host, _ := os.Hostname()
	return Machine{
		Host:        host,
		CPU:         field("/proc/cpuinfo", "model name"),
		Cores:       runtime.NumCPU(),
		Usable:      runtime.GOMAXPROCS(0),
		Kernel:      firstWord("/proc/sys/kernel/osrelease"),
		Cache:       cachesize.Last(),
		LoadBefore:  load.Now().Average,
		Environment: knobs(os.Environ()),
	}
}

// availableBytes is the memory that is available without swapping; 0 if unknown.
func availableBytes() int {
	words := strings.Fields(field("/proc/meminfo", "MemAvailable"))
	if len(words) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(words[0])
	return kib << 10
}

// knobs are the variables that may change the results, without secrets.
func knobs(environ []string) []string {
	var all []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if (strings.HasPrefix(name, "HOROVOD_") || strings.HasPrefix(name, "GOROVOD_")) && !strings.Contains(name,
			"SECRET") {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	return all
}

func firstWord(path string) string {
	text, _ := os.ReadFile(path)
	if words := strings.Fields(string(text)); len(words) > 0 {
		return words[0]
	}
	return ""
}

// field is the value of the first "name : value" in a file of /proc.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
