package cluster

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// mostInMatrix is how many hosts a table of pairs has at most.
const mostInMatrix = 12

// Report prints the facts, then what was measured between hosts, and then the findings, in lines of at most so many
// columns; 0 stands for no limit. well: a job can run, because no finding is a Failure.
func Report(w io.Writer, hosts []Host, pairs []Pair, v Variables, columns int) (well bool, err error) {
	facts(w, hosts, columns)
	if len(pairs) > 0 {
		matrices := matrix("LATENCY in µs, from the row to the column", hosts, pairs, func(p Path) string {
			return strconv.FormatFloat(float64(p.Latency)/float64(time.Microsecond), 'f', 1, 64)
		}) + matrix("BANDWIDTH in Gbit/s, one connection", hosts, pairs, func(p Path) string {
			return strconv.FormatFloat(p.Bandwidth*8/1e9, 'f', 2, 64)
		})
		if len(hosts) <= mostInMatrix && (columns == 0 || widest(matrices) <= columns) {
			io.WriteString(w, matrices)
		} else {
			slowest(w, hosts, pairs)
		}
		if line := choices(len(hosts), pairs); line != "" {
			fmt.Fprintln(w)
			entry(w, "ALLREDUCE between these hosts: ", line, columns)
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
		entry(w, fmt.Sprintf("%s: ", f.Level), host+f.What, columns)
		if f.Advice != "" {
			entry(w, "    ", f.Advice, columns)
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

// entry prints a text behind a heading. Further lines are indented as far as the heading is wide.
func entry(w io.Writer, heading, text string, columns int) {
	indent := utf8.RuneCountInString(heading)
	if columns > 0 {
		columns = max(1, columns-indent)
	}
	for _, line := range printable.Wrap(text, columns) {
		fmt.Fprintln(w, heading+line)
		heading = strings.Repeat(" ", indent)
	}
}

// widest is the width of the widest line.
func widest(text string) (columns int) {
	for line := range strings.Lines(text) {
		columns = max(columns, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return columns
}

// known are the facts of a host.
var known = []struct {
	name string
	of   func(h *Host, f *Facts) string
}{
	{"SLOTS", func(h *Host, _ *Facts) string { return strconv.Itoa(h.Slots) }},
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

// facts prints a line for each fact. Where hosts differ in it, each value has a line with its hosts.
func facts(w io.Writer, hosts []Host, columns int) {
	var names []string
	var seen []*Host
	for i := range hosts {
		h := &hosts[i]
		if h.Err != nil {
			names = append(names, h.Name+" (see below)")
			continue
		}
		names, seen = append(names, h.Name), append(seen, h)
	}
	heading := "HOST"
	if len(hosts) > 1 {
		heading = "HOSTS"
	}
	const width = len("FRAMEWORKS  ")
	entry(w, fmt.Sprintf("%-*s", width, heading), strings.Join(names, ", "), columns)
	for _, k := range known {
		heading := k.name
		values, on := group(seen, func(h *Host) string { return k.of(h, &h.Facts) })
		for _, v := range values {
			text := v
			if len(values) > 1 {
				text += " on " + strings.Join(on[v], ", ")
			}
			entry(w, fmt.Sprintf("%-*s", width, heading), text, columns)
			heading = ""
		}
	}
}

// group lists the values of the hosts, in the order of the hosts, and the names of the hosts that have each.
func group(hosts []*Host, value func(*Host) string) (values []string, on map[string][]string) {
	on = map[string][]string{}
	for _, h := range hosts {
		v := value(h)
		if on[v] == nil {
			values = append(values, v)
		}
		on[v] = append(on[v], h.Name)
	}
	return values, on
}

// matrix is a table of one value of each measured pair.
func matrix(title string, hosts []Host, pairs []Pair, value func(Path) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", title)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
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
	return b.String()
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

// choices are the algorithms that a job over the hosts chooses if it measures what was measured here. It is empty if
// some pair could not be measured.
func choices(hosts int, pairs []Pair) string {
	var link collective.Link
	for i, p := range pairs {
		if p.Err != nil {
			return ""
		}
		link.Latency = max(link.Latency, p.Path.Latency)
		if r := int(p.Path.Bandwidth); i == 0 || r < link.Rate {
			link.Rate = r
		}
	}
	var parts []string
	for _, c := range collective.Choices(hosts, link) {
		name := c.Algorithm
		if name == "ring" {
			name = "the ring"
		} else {
			name = "recursive " + name
		}
		if c.Most > 0 {
			name += fmt.Sprintf(" up to %d KiB", max(1, c.Most>>10))
		} else if len(parts) > 0 {
			name += " above"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
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
