// Package load tells how busy a host is, by the kernel's counters. Measurements and advice need it: on a busy host,
// times are those of programs that wait for a core.
package load

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Load is how busy a host was when Now looked.
type Load struct {
	Average float64 // the load average of the last minute; 0 if the kernel does not tell
	Running int     // threads that ran or waited for a core, other than the one that looked
	Cores   int     // of the host, which may be more than this process may use
}

// Now looks at this host.
func Now() Load {
	average, _ := os.ReadFile("/proc/loadavg")
	online, _ := os.ReadFile("/sys/devices/system/cpu/online")
	return parse(string(average), string(online))
}

// parse reads the kernel's two files. What it cannot read is 0, or for the cores those that this process may use.
func parse(loadavg, online string) (l Load) {
	if f := strings.Fields(loadavg); len(f) >= 4 {
		l.Average, _ = strconv.ParseFloat(f[0], 64)
		running, _, _ := strings.Cut(f[3], "/")
		n, _ := strconv.Atoi(running)
		l.Running = max(0, n-1)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(online), ",") {
		low, high, many := strings.Cut(part, "-")
		if !many {
			high = low
		}
		a, err := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || b < a {
			l.Cores = runtime.NumCPU()
			return l
		}
		l.Cores += b - a + 1
	}
	return l
}

// Full reports whether the programs of the last minute needed all cores, or more.
func (l Load) Full() bool { return l.Cores > 0 && l.Average >= float64(l.Cores) }

func (l Load) String() string {
	return fmt.Sprintf("load average %.1f on %s", l.Average, Cores(l.Cores))
}

// Cores writes a number of cores.
func Cores(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}
