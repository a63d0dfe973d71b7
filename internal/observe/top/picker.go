package top

import (
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/observe/jobs"
)

// picker is the screen on which a user picks one of several jobs. Like model it does no I/O.
type picker struct {
	jobs    []*source
	at      int // the job that Enter picks
	typed   int // the number as far as typed, 0 for none
	picked  bool
	leaving bool
}

// press obeys a key, or the letter if it is otherKey. A number moves to that job, and Enter picks it.
func (p *picker) press(k key, letter rune) {
	typed := 0
	switch {
	case k == upKey || k == otherKey && letter == 'k':
		p.at--
	case k == downKey || k == otherKey && letter == 'j':
		p.at++
	case k == homeKey || k == pageUpKey:
		p.at = 0
	case k == endKey || k == pageDownKey:
		p.at = len(p.jobs) - 1
	case k == enterKey:
		p.picked = true
	case k == quitKey || k == escapeKey || k == otherKey && letter == 'q':
		p.leaving = true
	case k == otherKey && letter >= '0' && letter <= '9':
		digit := int(letter - '0')
		if typed = 10*p.typed + digit; typed > len(p.jobs) { // the first digit of another number
			typed = digit
		}
		if typed > 0 && typed <= len(p.jobs) {
			p.at = typed - 1
		} else {
			typed = 0
		}
	}
	p.typed = typed
	p.at = max(0, min(p.at, len(p.jobs)-1))
}

// view is the screen's lines, at most height, of at most width columns each.
func (p *picker) view(width, height int) []line {
	lines := []line{{{fmt.Sprintf("%d jobs run on this host. Which one?", len(p.jobs)), title}}, nil}
	fits := max(1, height-len(lines)-2)
	from := max(0, min(p.at-fits/2, len(p.jobs)-fits))
	for i := from; i < min(len(p.jobs), from+fits); i++ {
		mark, look := "  ", plain
		if i == p.at {
			mark, look = "> ", heading
		}
		job := p.jobs[i]
		text := fmt.Sprintf("%s%*d  job %d: ", mark, len(fmt.Sprint(len(p.jobs))), i+1, job.job)
		text += jobs.Short(job.command, max(1, width-len(text)))
		lines = append(lines, line{{text, look}})
	}
	keys := line{{"arrows or number: choose  Enter: watch  q: quit", faint}}
	return clip(append(lines, nil, keys), width, height)
}

// several is the error where one job is asked for and several run. Its text is the list of them, with the command that
// shows each.
type several struct {
	jobs []*source
	once bool
}

func (s *several) Error() string {
	command := "gorovod top"
	if s.once {
		command += " --once"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d jobs run on this host. Name one of them:", len(s.jobs))
	for _, j := range s.jobs {
		text := fmt.Sprintf("\n  %s %d  (", command, j.job)
		b.WriteString(text + jobs.Short(j.command, 80-len(text)) + ")") // 80 columns
	}
	return b.String()
}
