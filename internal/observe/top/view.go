package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// look is how a piece of text looks. Without colours only bold and reversed are left.
type look int

const (
	plain look = iota
	faint
	title
	good
	bad     // ranks lose time
	worse   // nothing goes on
	heading // of a table
)

// span is a piece of a line.
type span struct {
	text string
	look look
}

type line []span

func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return strings.TrimRight(b.String(), " ")
}

// The largest numbers of lines of the parts of the screen beside the ranks, and the least number of lines for the
// ranks.
const (
	mostSentence = 4
	mostRates    = 2
	mostOpen     = 5
	mostHistory  = 4
	leastRanks   = 3 // fewer only on a screen that has room for nothing else
)

// view is the screen's lines, at most height, of at most width columns each. It notes in m how many ranks fit.
func (m *model) view(width, height int, at time.Time) []line {
	if m.help {
		return clip(helpLines(), width, height)
	}
	lines := m.top(width, at)
	if m.now == nil {
		return clip(lines, width, height)
	}
	open, past, sparse := m.open(), m.history(mostHistory), m.sparse()
	room := height - len(lines) - 2 // the heading and the line of keys
	if room-len(open)-len(past)-len(sparse) < min(leastRanks, m.size()) {
		sparse = nil
	}
	room -= len(sparse)
	for len(past) > 0 && room-len(open)-len(past) < min(leastRanks, m.size()) {
		past = past[:len(past)-1]
	}
	if len(past) == 1 { // a heading alone
		past = nil
	}
	for len(open) > 0 && room-len(open)-len(past) < min(leastRanks, m.size()) {
		open = open[:len(open)-1]
	}
	if len(open) == 1 {
		open = nil
	}
	m.fits = max(1, min(m.size(), room-len(open)-len(past)))
	m.offset = max(0, min(m.offset, m.size()-m.fits))
	order := m.sorted()
	lines = append(lines, m.table(width, order[m.offset:min(len(order), m.offset+m.fits)])...)
	lines = append(append(append(lines, sparse...), open...), past...)
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	lines = lines[:min(len(lines), max(0, height-1))]
	return clip(append(lines, m.keys()), width, height)
}

// once is the whole job in plain lines, for scripts.
func (m *model) once(at time.Time) []line {
	const width = 120
	lines := append(m.top(width, at), m.table(width, m.sorted())...)
	return append(append(append(lines, m.sparse()...), m.open()...), m.history(len(m.now.History))...)
}

// top is what stands above the ranks.
func (m *model) top(width int, at time.Time) []line {
	if m.now == nil {
		return []line{{{m.name, title}}, {{"Waiting for what the launcher tells …", faint}}}
	}
	s := m.now
	head := fmt.Sprintf("%s  %d %s on %d %s", m.name, s.Size, plural(s.Size, "rank"), len(s.Hosts),
		plural(len(s.Hosts), "host"))
	if s.World > 1 {
		head += fmt.Sprintf(", formed %d times", s.World)
	}
	lines := []line{{{head, title}}}
	if age := at.Sub(m.came); age > 4*overview.Every {
		text := fmt.Sprintf("No news for %.0f s: the launcher does not answer.", age.Seconds())
		lines = append(lines, line{{text, worse}})
	}
	tone := map[overview.Tone]look{overview.Fine: good, overview.Slow: bad, overview.Stuck: worse}[s.Tone]
	for _, text := range wrap(clean(s.Sentence), width, mostSentence) {
		lines = append(lines, line{{text, tone}})
	}
	if w := s.Where; w != nil {
		for _, text := range wrap(clean(fmt.Sprintf("Rank %d: %s", w.Rank, w.Text)), width, mostSentence) {
			lines = append(lines, line{{text, plain}})
		}
	}
	var rates []string
	if s.Step > 0 {
		rates = append(rates, "step "+overview.Duration(s.Step), number(1/s.Step)+" steps/s")
	}
	if s.Samples > 0 {
		rates = append(rates, number(s.Samples)+" samples/s")
	}
	rates = append(rates, number(s.Collectives)+" collectives/s", overview.Bytes(s.Bytes)+"/s",
		fmt.Sprintf("waiting %.0f %%", 100*s.Waiting), fmt.Sprintf("communicating %.0f %%", 100*s.Communicating))
	for _, text := range rows(rates, width, mostRates) {
		lines = append(lines, line{{text, plain}})
	}
	if text := m.links(); text != "" {
		lines = append(lines, line{{text, plain}})
	}
	return append(lines, nil)
}

// mostLinks is how many links have a place on the screen.
const mostLinks = 3

// links says how fast data goes over each link in collectives of the sizes that move most, and the limit if known.
func (m *model) links() string {
	var parts []string
	shown := map[string]bool{}
	for _, l := range m.now.Links {
		name := l.Link
		if l.NIC != "" {
			name += " " + clean(l.NIC)
		}
		if shown[name] || len(parts) == mostLinks {
			continue
		}
		shown[name] = true
		text := fmt.Sprintf("%s %s/s a rank, up to %s", name, overview.Bytes(l.Rate), l.Class)
		if l.Limit > 0 {
			text += fmt.Sprintf(" (a host %s/s, %.0f %% of its limit)", overview.Bytes(l.HostRate),
				100*l.HostRate/l.Limit)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "  ")
}

// mostTables is how many sparse tables have a line.
const mostTables = 3

// sparse are the sparse tables, those with the most memory first.
func (m *model) sparse() []line {
	if len(m.now.Tables) == 0 {
		return nil
	}
	lines := []line{{{"SPARSE TABLES", heading}}}
	for i := range m.now.Tables {
		if i == mostTables {
			lines = append(lines, line{{fmt.Sprintf("  and %d more", len(m.now.Tables)-i), faint}})
			break
		}
		lines = append(lines, line{{"  " + tableLine(&m.now.Tables[i]), plain}})
	}
	return lines
}

// tableLine is what a line says of a sparse table.
func tableLine(t *overview.Table) string {
	text := fmt.Sprintf("%s: %d %s, %s", clean(t.Name), t.Rows, plural(int(t.Rows), "row"),
		overview.Bytes(float64(t.Bytes)))
	if t.Pull > 0 {
		text += ", pull " + overview.Duration(t.Pull)
	}
	if t.Push > 0 {
		text += ", push " + overview.Duration(t.Push)
	}
	return text + fmt.Sprintf(", %.0f %% of lookups for 16 keys", 100*t.Hottest)
}

// column is a column of the table of ranks.
type column struct {
	title string
	width int
	key   rune // of keys; 0 for none
	cell  func(m *model, rank int, r *overview.Rank) (string, look)
}

// columns are those of the table. A narrow screen has the first ones that fit; the host gets the room that is left.
var columns = []column{
	{"RANK", 5, 'n', func(_ *model, rank int, _ *overview.Rank) (string, look) { return fmt.Sprint(rank), plain }},
	{"WAITS", 6, 'w', func(_ *model, _ int, r *overview.Rank) (string, look) { return percent(r, r.Waiting), plain }},
	{"FOR", 6, 0, func(_ *model, _ int, r *overview.Rank) (string, look) {
		if r.Whom < 0 || r.Silent < 0 {
			return "-", plain
		}
		return fmt.Sprint(r.Whom), plain
	}},
	{"WAITED-FOR", 11, 'l', func(_ *model, _ int, r *overview.Rank) (string, look) {
		how := plain
		switch {
		case r.Late >= 50:
			how = worse
		case r.Late >= 10:
			how = bad
		}
		return percent(r, r.Late), how
	}},
	{"CORES", 6, 'c', func(_ *model, _ int, r *overview.Rank) (string, look) {
		return known(r, fmt.Sprintf("%.2f", r.Cores)), plain
	}},
	{"MEMORY", 9, 'm', func(_ *model, _ int, r *overview.Rank) (string, look) {
		return known(r, overview.Bytes(float64(r.Memory))), plain
	}},
	{"NO-CORE", 8, 'o', func(_ *model, _ int, r *overview.Rank) (string, look) {
		return known(r, fmt.Sprintf("%.0f %%", 100*r.Starved)), plain
	}},
	{"IN-FLIGHT", 10, 'f', func(_ *model, _ int, r *overview.Rank) (string, look) {
		return known(r, fmt.Sprint(r.Pending)), plain
	}},
}

const leastHost = 8

func percent(r *overview.Rank, v uint8) string { return known(r, fmt.Sprintf("%d %%", v)) }

// known returns text, unless nothing is known of the rank.
func known(r *overview.Rank, text string) string {
	if r.Silent < 0 {
		return "-"
	}
	return text
}

// table is the heading and these ranks.
func (m *model) table(width int, ranks []int) []line {
	shown, used := columns, 0
	for i, c := range columns {
		if used += c.width + 1; used > width {
			shown = columns[:max(1, i)]
			break
		}
	}
	used = 0
	head := line{}
	for _, c := range shown {
		used += c.width + 1
		text := c.title
		if c.key == keys[m.key].letter {
			text = "*" + text
		}
		head = append(head, span{right(text, c.width) + " ", heading})
	}
	room := width - used - 1
	if room >= leastHost {
		head = append(head, span{" HOST", heading})
	}
	lines := []line{head}
	for _, rank := range ranks {
		r := &m.now.Ranks[rank]
		l := line{}
		for _, c := range shown {
			text, how := c.cell(m, rank, r)
			l = append(l, span{right(text, c.width) + " ", how})
		}
		if room >= leastHost {
			l = append(l, span{" " + cut(m.state(r), room), plain})
		}
		lines = append(lines, l)
	}
	return lines
}

// state is a rank's host, and whether it answers.
func (m *model) state(r *overview.Rank) string {
	switch {
	case r.Silent < 0:
		return "has told nothing yet"
	case r.Host < 0 || r.Host >= len(m.now.Hosts):
		return "?"
	case r.Silent >= 4:
		return fmt.Sprintf("%s, silent for %.0f s", clean(m.now.Hosts[r.Host]), r.Silent)
	}
	return clean(m.now.Hosts[r.Host])
}

// open are the operations in flight.
func (m *model) open() []line {
	if len(m.now.Open) == 0 {
		return nil
	}
	lines := []line{{{"OPERATIONS IN FLIGHT", heading}}}
	for i, o := range m.now.Open {
		if i == mostOpen {
			lines = append(lines, line{{fmt.Sprintf("  and %d more", len(m.now.Open)-i), faint}})
			break
		}
		text := "executes"
		if o.State == "waits" {
			text = fmt.Sprintf("submitted by %s", clean(o.Waits))
			if o.Missing != "" {
				text += ", missing " + clean(o.Missing)
			}
		}
		lines = append(lines, line{{fmt.Sprintf("%7.1f s  %s %s: %s", o.Age, clean(o.Op), clean(o.Name), text), plain}})
	}
	return lines
}

// history is the newest events, up to the number most.
func (m *model) history(most int) []line {
	all := m.now.History
	if len(all) == 0 {
		return nil
	}
	lines := []line{{{"WHAT HAPPENED", heading}}}
	for _, e := range all[max(0, len(all)-most):] {
		lines = append(lines, line{{time.UnixMilli(e.Time).Format("  15:04:05  ") + clean(e.Text), plain}})
	}
	return lines
}

// keys is the last line.
func (m *model) keys() line {
	where := ""
	if m.size() > m.fits {
		where = fmt.Sprintf("ranks %d-%d of %d  ", m.offset+1, m.offset+m.fits, m.size())
	}
	return line{{where + "q quit  s sort: " + keys[m.key].name + "  r reverse  h help", faint}}
}

func helpLines() []line {
	lines := []line{{{"gorovod top", title}}, nil}
	for _, k := range [][2]string{{"q", "quit"}, {"s, S", "sort by the next column, or the one before"},
		{"r", "reverse the order"}, {"up, down, PgUp, PgDn, Home, End", "scroll"}} {
		lines = append(lines, line{{fmt.Sprintf("  %-34s %s", k[0], k[1]), plain}})
	}
	for _, k := range keys {
		lines = append(lines, line{{fmt.Sprintf("  %-34c sort by %s", k.letter, k.name), plain}})
	}
	return append(lines, nil,
		line{{"  WAITS       share of the last second in which the rank waited for others", plain}},
		line{{"  WAITED-FOR  share of the last second in which the others waited for it", plain}},
		line{{"  NO-CORE     share of the time in which its main thread could run, but had no core", plain}},
		nil, line{{"Any key leads back.", faint}})
}

// clean returns a text of a rank as one printable line.
func clean(s string) string { return strings.Join(strings.Fields(printable.Text(s)), " ") }

// clip cuts lines to the screen.
func clip(lines []line, width, height int) []line {
	lines = lines[:min(len(lines), max(0, height))]
	for i, l := range lines {
		room := width
		for k, s := range l {
			if w := uniseg.StringWidth(s.text); w > room {
				l[k].text = cut(s.text, room)
				lines[i] = l[:k+1]
				break
			}
			room -= uniseg.StringWidth(s.text)
		}
	}
	return lines
}

// cut returns s in at most width columns.
func cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	if uniseg.StringWidth(s) <= width {
		return s
	}
	end, used, state := 0, 0, -1
	for rest := s; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width-1 {
			break
		}
		used += w
		end += len(cluster)
	}
	return s[:end] + "…"
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(0, width-uniseg.StringWidth(s))) + cut(s, width)
}

// wrap breaks a text at spaces into at most the given number of lines.
func wrap(s string, width, most int) []string {
	var lines []string
	for s != "" && len(lines) < most-1 && uniseg.StringWidth(s) > width {
		end, last := 0, 0
		for i, r := range s {
			if r == ' ' {
				if uniseg.StringWidth(s[:i]) > width {
					break
				}
				last = i
			}
			end = i
		}
		if last == 0 {
			last = min(len(s), end+1)
			if head := cut(s, width); len(head) < len(s) { // one word that is too long
				last = len(strings.TrimSuffix(head, "…"))
			}
			if last == 0 {
				break
			}
		}
		lines = append(lines, s[:last])
		s = strings.TrimLeft(s[last:], " ")
	}
	if s != "" {
		lines = append(lines, cut(s, width))
	}
	return lines
}

// rows sets parts in a line, or in at most so many lines where they are too wide for one. A part has two spaces before
// the next.
func rows(parts []string, width, most int) (lines []string) {
	text := parts[0]
	for _, part := range parts[1:] {
		if len(lines) < most-1 && uniseg.StringWidth(text)+2+uniseg.StringWidth(part) > width {
			lines, text = append(lines, text), part
		} else {
			text += "  " + part
		}
	}
	return append(lines, text)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// number is a number with three digits.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
