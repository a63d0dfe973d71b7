package cluster

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// mostInMatrix is how many hosts a table of pairs has at most.
const mostInMatrix = 12

// Report prints the facts as tables, and then the findings. well: a job can run, because no finding is a Failure.
func Report(w io.Writer, hosts []Host, pairs []Pair, v Variables) (well bool, err error) {
	facts(w, hosts)
	if len(pairs) > 0 {
		if len(hosts) <= mostInMatrix {
			matrix(w, "LATENCY in µs, from the row to the column", hosts, pairs, func(p Path) string {
				return strconv.FormatFloat(float64(p.Latency)/float64(time.Microsecond), 'f', 1, 64)
			})
			matrix(w, "BANDWIDTH in Gbit/s, one connection", hosts, pairs, func(p Path) string {
				return strconv.FormatFloat(p.Bandwidth*8/1e9, 'f', 2, 64)
			})
		} else {
			slowest(w, hosts, pairs)
		}
	}
	findings := append(v.check(), Check(hosts, pairs)...)
	well = true
	fmt.Fprintln(w)
	for _, f := range findings {
		well = well && f.Level < Failure
		host := ""
		if f.Host != "" {
			host = f.Host + ": "
		}
		fmt.Fprintf(w, "%s: %s%s\n", f.Level, host, f.What)
		if f.Advice != "" {
			fmt.Fprintf(w, "    %s\n", f.Advice)
		}
	}
	switch {
	case !well:
		_, err = fmt.Fprintln(w, "A job over these hosts cannot run.")
	case len(findings) > 0:
		_, err = fmt.Fprintln(w, "A job over these hosts can run.")
	default:
		_, err = fmt.Fprintln(w, "All is well.")
	}
	return well, err
}

// columns are what the table says of a host, after its name and slots.
var columns = []struct {
	name string
	of   func(h *Host, f *Facts) string
}{
	{"CORES", func(_ *Host, f *Facts) string { return cores(*f) }},
	{"MEMORY", func(_ *Host, f *Facts) string { return bytes(atMost(f.Memory, f.MemoryLimit)) }},
	{"/dev/shm", func(_ *Host, f *Facts) string { return bytes(f.Shm) }},
	{"FILES", func(_ *Host, f *Facts) string { return count(f.Files) }},
	{"LOCKED", func(_ *Host, f *Facts) string { return bytes(f.Locked) }},
	{"PORTS", func(_ *Host, f *Facts) string { return count(int64(f.Ports)) }},
	{"CLOCK", func(h *Host, _ *Facts) string { return clock(*h) }},
	{"GPUS", func(_ *Host, f *Facts) string { return strconv.Itoa(f.GPUs) }},
	{"PYTHON", func(_ *Host, f *Facts) string { return or(f.Python) }},
	{"FRAMEWORKS", func(_ *Host, f *Facts) string { return or(strings.Join(named(f.Frameworks), " ")) }},
	{"MPI", func(_ *Host, f *Facts) string { return or(f.MPI) }},
	{"NCCL", func(_ *Host, f *Facts) string { return or(f.NCCL) }},
	{"ADDRESSES", func(_ *Host, f *Facts) string { return or(where(f.Addresses)) }},
}

// facts prints a table with a row for each host. One host alone has a line for each fact, because the row would be
// wider than a terminal.
func facts(w io.Writer, hosts []Host) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	if len(hosts) == 1 && hosts[0].Err == nil {
		h := &hosts[0]
		fmt.Fprintf(t, "HOST\t%s\nSLOTS\t%d\n", h.Name, h.Slots)
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t%s\n", c.name, c.of(h, &h.Facts))
		}
		return
	}
	fmt.Fprint(t, "HOST\tSLOTS")
	for _, c := range columns {
		fmt.Fprint(t, "\t"+c.name)
	}
	fmt.Fprintln(t)
	for i := range hosts {
		h := &hosts[i]
		fmt.Fprintf(t, "%s\t%d", h.Name, h.Slots)
		if h.Err != nil {
			fmt.Fprintln(t, "\t(see below)")
			continue
		}
		for _, c := range columns {
			fmt.Fprint(t, "\t"+c.of(h, &h.Facts))
		}
		fmt.Fprintln(t)
	}
}

// matrix prints one value of each measured pair.
func matrix(w io.Writer, title string, hosts []Host, pairs []Pair, value func(Path) string) {
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, h := range hosts {
		fmt.Fprintf(t, "%s\t", h.Name)
	}
	fmt.Fprintln(t)
	for i, h := range hosts {
		fmt.Fprintf(t, "%s\t", h.Name)
		for j := range hosts {
			cell := "-"
			for _, p := range pairs {
				if p.From == i && p.To == j {
					if cell = "none"; p.Err == nil {
						cell = value(p.Path)
					}
				}
			}
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// slowest prints the pairs with the extreme values.
func slowest(w io.Writer, hosts []Host, pairs []Pair) {
	var good []Pair
	for _, p := range pairs {
		if p.Err == nil {
			good = append(good, p)
		}
	}
	if len(good) == 0 {
		return
	}
	slices.SortFunc(good, func(a, b Pair) int { return int(a.Path.Bandwidth - b.Path.Bandwidth) })
	middle := good[len(good)/2]
	fmt.Fprintf(w, "\n%d pairs were measured; the middle one has %s. The slowest:\n", len(good),
		rate(middle.Path.Bandwidth))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range good[:min(8, len(good))] {
		fmt.Fprintf(t, "  %s → %s\t%s\t%v\n", hosts[p.From].Name, hosts[p.To].Name, rate(p.Path.Bandwidth),
			p.Path.Latency.Round(100*time.Nanosecond))
	}
	t.Flush()
}

func cores(f Facts) string {
	text := strconv.Itoa(f.Cores)
	if f.Online > f.Cores {
		text += " of " + strconv.Itoa(f.Online)
		if f.Affinity != "" {
			text += ": " + f.Affinity
		}
	}
	if f.Quota > 0 && f.Quota < float64(f.Cores) {
		text += " (" + trim(f.Quota) + "'s worth)"
	}
	return text
}

func clock(h Host) string {
	if abs(h.Clock) <= h.Doubt {
		return "same"
	}
	unit := time.Millisecond
	if abs(h.Clock) < 10*time.Millisecond {
		unit = 100 * time.Microsecond
	}
	text := h.Clock.Round(unit).String()
	if h.Clock > 0 {
		text = "+" + text
	}
	return text
}

func named(versions map[string]string) (list []string) {
	for _, p := range packages {
		if v := versions[p]; v != "" {
			list = append(list, p+" "+v)
		}
	}
	return list
}

func where(addresses []Address) string {
	var list []string
	for _, a := range addresses {
		list = append(list, a.Interface+" "+a.Address)
	}
	return strings.Join(list, ", ")
}

// atMost is the smaller of a value and a limit; a limit of 0 is none.
func atMost(value, limit int64) int64 {
	if limit > 0 {
		return min(value, limit)
	}
	return value
}

func bytes(n int64) string {
	switch {
	case n == unlimited:
		return "unlimited"
	case n == 0:
		return "-"
	case n >= 1<<30:
		return trim(float64(n)/(1<<30)) + " GiB"
	}
	return trim(float64(n)/(1<<20)) + " MiB"
}

func count(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func rate(bytesPerSecond float64) string { return fmt.Sprintf("%.2f Gbit/s", bytesPerSecond*8/1e9) }

func trim(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
