package load

import (
	"bytes"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which Linux tells processor time.
const tick = time.Second / 100

// Usage is the processor time that this host had used when Used looked.
type Usage struct {
	all time.Duration // by all programs and the kernel
	own time.Duration // by this process and its descendants
	at  time.Time
}

// Used looks at this host. It takes a few milliseconds if there are a thousand processes.
func Used() Usage {
	u := used(os.DirFS("/proc"), os.Getpid())
	u.at = time.Now()
	return u
}

// Others is how many cores other programs than this process and its descendants, and the kernel, used on average since
// an earlier look; 0 if the kernel does not tell.
func (u Usage) Others(since Usage) float64 {
	passed := u.at.Sub(since.at)
	if passed <= 0 {
		return 0
	}
	return max(0, float64((u.all-since.all)-(u.own-since.own))/float64(passed))
}

// used reads a /proc.
func used(proc fs.FS, self int) (u Usage) {
	u.all = busy(proc)
	files, _ := fs.Glob(proc, "[0-9]*/stat")
	times, parents := map[int]time.Duration{}, map[int]int{}
	for _, file := range files {
		text, err := fs.ReadFile(proc, file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(strings.TrimSuffix(file, "/stat"))
		parents[pid], times[pid] = process(text)
	}
	for pid, t := range times {
		// The bound is for parents that change while they are read.
		for p, n := pid, 0; p > 0 && n < 100; p, n = parents[p], n+1 {
			if p == self {
				u.own += t
				break
			}
		}
	}
	return u
}

// busy is the time that all cores have not been idle. Time in which another virtual machine had a core does not count.
func busy(proc fs.FS) time.Duration {
	text, _ := fs.ReadFile(proc, "stat")
	line, _, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) < 8 || words[0] != "cpu" {
		return 0
	}
	// The columns are user, nice, system, idle, iowait, irq, softirq.
	return ticks(words[1]) + ticks(words[2]) + ticks(words[3]) + ticks(words[6]) + ticks(words[7])
}

// process reads the stat of a process: its parent, and the time that it and its children that have ended have used.
func process(text []byte) (parent int, used time.Duration) {
	// Its name, in brackets, may contain anything. After it come state, parent, …; columns 12 to 15 are the times.
	words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(words) < 15 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(words[1])
	return parent, ticks(words[11]) + ticks(words[12]) + ticks(words[13]) + ticks(words[14])
}

func ticks(word string) time.Duration {
	n, _ := strconv.ParseInt(word, 10, 64)
	return time.Duration(n) * tick
}
