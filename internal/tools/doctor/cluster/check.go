package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Host is what the examination found about one host.
type Host struct {
	Name  string
	Slots int
	// Err says why nothing was found; then the other fields are empty.
	Err   error
	Facts Facts
	// Clock is how far the host's clock is ahead of this host's. Doubt is the error of that.
	Clock, Doubt time.Duration
}

// Pair is the measurement between two hosts, by their indexes.
type Pair struct {
	From, To int
	Path     Path
	Err      error
}

// Level says how bad a finding is.
type Level int

// Levels of findings.
const (
	Note Level = iota // good to know
	Warning
	Failure // a job cannot run like this
)

func (l Level) String() string { return [...]string{"note", "warning", "FAILURE"}[l] }

// Finding is a fact about a host, or about all hosts if Host is empty.
type Finding struct {
	Level  Level
	Host   string
	What   string
	Advice string
}

// Values that count as too little, or too much.
const (
	leastShm   = 1 << 30
	leastFiles = 4096
	leastPorts = 4096
	mostClock  = time.Second
	slowLink   = 4 // times slower than the median
)

// Check judges the facts and measurements. Failures come first.
func Check(hosts []Host, pairs []Pair) (all []Finding) {
	add := func(level Level, host, advice, format string, args ...any) {
		all = append(all, Finding{level, host, fmt.Sprintf(format, args...), advice})
	}
	var seen []Host
	for _, h := range hosts {
		if h.Err != nil {
			what, advice, _ := strings.Cut(strings.TrimPrefix(h.Err.Error(), "host "+h.Name+": "), "\n")
			add(Failure, h.Name, strings.Join(strings.Fields(advice), " "), "%s", what)
			continue
		}
		seen = append(seen, h)
		f := h.Facts
		if len(hosts) > 1 && len(f.Addresses) == 0 {
			add(Failure, h.Name, "give it an address in a network that the other hosts share",
				"it has no address but loopback's")
		}
		if f.Shm > 0 && f.Shm < leastShm {
			add(Warning, h.Name, "frameworks' data loaders need more: docker run --shm-size=8g, or a larger tmpfs",
				"/dev/shm has %s only", bytes(f.Shm))
		}
		if f.Files > 0 && f.Files < leastFiles {
			add(Warning, h.Name, "raise it with ulimit -n, or in /etc/security/limits.conf",
				"%d files may be open (ulimit -n)", f.Files)
		}
		if f.Ports > 0 && f.Ports < leastPorts {
			add(Warning, h.Name, "each rank listens at two ports, and connects to others by as many more as it talks "+
				"to: widen net.ipv4.ip_local_port_range", "the kernel has %d ports to give", f.Ports)
		}
		if f.GPUs > 0 && f.Locked != 0 && f.Locked < 64<<20 {
			add(Warning, h.Name, "pinned memory and RDMA need more: ulimit -l unlimited",
				"%s of memory may be locked (ulimit -l)", bytes(f.Locked))
		}
		if usable := f.usable(); usable > 0 && float64(h.Slots) > usable {
			advice := "ranks that wait will give their core away, which costs speed: fewer slots, or more cores"
			if f.Cores < f.Online {
				advice += " (processes may use " + cores(f) + ": taskset, a cpuset or a container keeps the " +
					"others from them)"
			}
			add(Warning, h.Name, advice, "%d slots on %s cores", h.Slots, trim(usable))
		}
		if f.Load.Full() {
			add(Warning, h.Name, "ranks will wait for a core: end other programs, or expect slow steps that differ "+
				"from rank to rank, and figures that are noise", "%v: other programs need the cores, too", f.Load)
		}
		if m, limit := f.Memory, f.MemoryLimit; limit > 0 && limit < m/2 {
			add(Note, h.Name, "a rank that needs more is killed: give the container, or the user's slice, more",
				"its control group has %s of %s of memory", bytes(limit), bytes(m))
		}
		if abs(h.Clock) > mostClock+h.Doubt {
			add(Warning, h.Name, "let all hosts follow a time server (chrony), else the times in logs do not fit",
				"its clock is %v %s this one's", abs(h.Clock).Round(time.Millisecond), aheadOrBehind(h.Clock))
		}
		if f.Python == "" {
			level := Warning
			if f.Named { // jobs of Go need none, but the user wants this one
				level = Failure
			}
			add(level, h.Name, "--python says which Python is meant, by a name or path on that host",
				"nothing is known of the Python %s, whose frameworks count: %s", f.Asked, f.PythonProblem)
		}
		if f.NCCLProblem != "" {
			add(Warning, h.Name, "gorovod doctor --gpu --python "+f.Asked+", on that host, says more", "%s",
				f.NCCLProblem)
		}
		if f.Frameworks["pyspark"] != "" && f.Java == "" {
			add(Warning, h.Name, "install Java 17 or later (Debian: openjdk-17-jre-headless), or set JAVA_HOME; "+
				"Spark Connect alone needs none", "PySpark is installed, but there is no Java, which Spark needs")
		}
		if f.Frameworks["gorovod"] != "" && f.Frameworks["horovod"] != "" {
			add(Warning, h.Name, "pip uninstall horovod", "Python has Horovod and gorovod installed: only one can "+
				"be imported")
		}
	}
	agree := func(level Level, what, advice string, value func(Facts) string) {
		if text, same := census(seen, value); !same {
			add(level, "", advice, "hosts differ in %s: %s", what, text)
		}
	}
	agree(Failure, "architecture", "a job needs hosts of one kind", func(f Facts) string { return f.Arch })
	agree(Failure, "gorovod's version", "install the same everywhere", func(f Facts) string { return f.Version })
	agree(Warning, "Python's version", "--python says which is meant", func(f Facts) string { return f.Python })
	for _, p := range packages {
		agree(Warning, p, "install the same everywhere", func(f Facts) string { return f.Frameworks[p] })
	}
	if slices.ContainsFunc(seen, func(h Host) bool { return h.Facts.Frameworks["pyspark"] != "" }) {
		add(Note, "", "try a short training first; stores in files, in memory, over http and s3 are tested",
			"horovod.spark's stores on HDFS, DBFS (Databricks) and gs are untested against the service")
	}
	all = append(all, judge(hosts, pairs)...)
	slices.SortStableFunc(all, func(a, b Finding) int { return int(b.Level - a.Level) })
	return all
}

// Variables is what the environment variables of this process, and so of a job, are worth.
type Variables struct {
	Wrong error    // why no job can start with them, a line for each reason; nil: one can
	Odd   []string // what its author may not have meant
}

func (v Variables) check() (all []Finding) {
	const host, advice = "this environment", "gorovod doctor --env lists the variables"
	if v.Wrong != nil {
		for reason := range strings.SplitSeq(v.Wrong.Error(), "\n") {
			all = append(all, Finding{Failure, host, reason, advice})
		}
	}
	for _, odd := range v.Odd {
		all = append(all, Finding{Warning, host, odd, advice})
	}
	return all
}

// judge finds problems between hosts.
func judge(hosts []Host, pairs []Pair) (all []Finding) {
	var speeds []float64
	for _, p := range pairs {
		if p.Err == nil {
			speeds = append(speeds, p.Path.Bandwidth)
		}
	}
	slices.Sort(speeds)
	for _, p := range pairs {
		name := hosts[p.From].Name + " → " + hosts[p.To].Name
		switch {
		case p.Err != nil:
			all = append(all, Finding{Failure, name, "no connection: " + strings.ReplaceAll(p.Err.Error(), "\n", "; "),
				"ranks listen at ports that the kernel chooses: a firewall must let the hosts of a job reach one " +
					"another at all of them"})
		case len(speeds) > 2 && p.Path.Bandwidth < speeds[len(speeds)/2]/slowLink:
			all = append(all, Finding{Warning, name, fmt.Sprintf("%s, while half of the pairs have more than %s",
				rate(p.Path.Bandwidth), rate(speeds[len(speeds)/2])), "one slow link holds every collective back: " +
				"look at its cable, its duplex, or another user"})
		}
	}
	return all
}

// census lists the hosts by their value. same: all hosts have the same value.
func census(hosts []Host, value func(Facts) string) (text string, same bool) {
	list := make([]*Host, len(hosts))
	for i := range hosts {
		list[i] = &hosts[i]
	}
	values, by := group(list, func(h *Host) string { return value(h.Facts) })
	var parts []string
	for _, v := range values {
		names := by[v]
		if len(names) > 4 {
			names = append(slices.Clone(names[:4]), fmt.Sprintf("and %d more", len(names)-4))
		}
		if v == "" {
			v = "none"
		}
		parts = append(parts, fmt.Sprintf("%s on %s", v, strings.Join(names, " ")))
	}
	return strings.Join(parts, ", "), len(values) < 2
}

// usable is how many cores the host's processes can keep busy.
func (f Facts) usable() float64 {
	if f.Quota > 0 {
		return min(float64(f.Cores), f.Quota)
	}
	return float64(f.Cores)
}

func abs(d time.Duration) time.Duration { return max(d, -d) }

func aheadOrBehind(d time.Duration) string {
	if d > 0 {
		return "ahead of"
	}
	return "behind"
}
