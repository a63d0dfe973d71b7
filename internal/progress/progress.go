// Package progress tells people who wait how far something is: on a terminal by one line that is written over and
// disappears, elsewhere by a line now and then. What is over soon it does not mention. Commands use it; the engine and
// hvd never do.
package progress

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/printable"
)

// The times at which something is said. What takes less than the first is not mentioned.
const (
	firstDrawn = 2 * time.Second        // on a terminal
	drawEvery  = 200 * time.Millisecond // there
	firstSaid  = 5 * time.Second        // elsewhere
	sayEvery   = 5 * time.Second        // there, and only what differs from what was said last
	lookEvery  = time.Second            // there
	// lastDraw is how long Close waits for the terminal.
	lastDraw = 100 * time.Millisecond
)

// erase takes the cursor to the line's beginning, and removes what is there.
const erase = "\r\x1b[K"

// Line is the place for the news of one wait after another. Its methods may be called on any goroutine, and on a nil
// Line, which shows nothing. They do not wait for the terminal.
type Line struct {
	terminal *os.File          // where it is drawn; nil: it is said
	say      func(text string) // if it is not drawn
	over     chan struct{}
	gone     chan struct{} // closed when the goroutine has ended
	ended    sync.Once

	mu   sync.Mutex
	wait int64     // counts the waits
	news News      // of this wait; nil: nobody waits
	from time.Time // since when somebody has

	// screen is held while something is written to the terminal.
	screen sync.Mutex
	shown  string // what of the line is on the terminal. screen
}

// News says how far something is, or false if it is over. An empty text is not shown.
type News func() (text string, waiting bool)

// New makes a Line on w if that is a terminal; otherwise say gets its lines, each without its end. Close it.
func New(w io.Writer, say func(text string)) *Line {
	return open(w, say, pace{every: drawEvery, first: firstDrawn},
		pace{every: lookEvery, first: firstSaid, between: sayEvery})
}

// open is New with the times at which a Line is drawn or said.
func open(w io.Writer, say func(text string), drawn, said pace) *Line {
	l := &Line{say: say, over: make(chan struct{}), gone: make(chan struct{})}
	p := said
	if f, ok := w.(*os.File); ok && IsTerminal(f) {
		l.terminal, p = f, drawn
	}
	go l.run(p)
	return l
}

// pace are the times of a Line.
type pace struct {
	every   time.Duration // between two looks at the news
	first   time.Duration // from the beginning of a wait to the first word
	between time.Duration // at least, from one word to the next
}

// IsTerminal reports whether f is a terminal on which a line can be written over.
func IsTerminal(f *os.File) bool {
	return size(f) != nil && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// columns is the width of a terminal.
func columns(f *os.File) int {
	if s := size(f); s != nil && s.Col > 0 {
		return int(s.Col)
	}
	return 80
}

// size is a terminal's size, and nil for a file that is none. f stays as it is: Fd would make it block.
func size(f *os.File) (s *unix.Winsize) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		if s, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err != nil {
			s = nil
		}
	})
	return s
}

// Wait begins a wait, or goes on with other news if there is one already. news is called every so often, on a goroutine
// of the Line, and must not block.
func (l *Line) Wait(news News) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news == nil {
		l.from = time.Now()
	}
	l.wait++
	l.news = news
}

// Done ends the wait. The line disappears before something else is written by Over.
func (l *Line) Done() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = nil
}

// Close ends the Line. What was drawn is gone then, unless the terminal does not take it.
func (l *Line) Close() {
	if l == nil {
		return
	}
	l.Done()
	l.ended.Do(func() { close(l.over) })
	select {
	case <-l.gone:
	case <-time.After(lastDraw):
	}
}

// Over returns a writer to w that takes the line away first, for whatever else is written to the terminal.
func (l *Line) Over(w io.Writer) io.Writer {
	if l == nil || l.terminal == nil {
		return w
	}
	return &above{l, w}
}

type above struct {
	line *Line
	to   io.Writer
}

func (a *above) Write(p []byte) (int, error) {
	a.line.screen.Lock()
	defer a.line.screen.Unlock()
	a.line.hide()
	return a.to.Write(p)
}

// hide takes the line away. screen is held.
func (l *Line) hide() {
	if l.shown != "" {
		io.WriteString(l.terminal, erase)
		l.shown = ""
	}
}

// now is what there is to show, and for how long somebody has waited.
func (l *Line) now() (text string, waited time.Duration) {
	l.mu.Lock()
	wait, news, from := l.wait, l.news, l.from
	l.mu.Unlock()
	if news == nil {
		return "", 0
	}
	text, waiting := news()
	if !waiting {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.wait == wait {
			l.news = nil
		}
		return "", 0
	}
	return text, time.Since(from)
}

// run is the goroutine that shows.
func (l *Line) run(p pace) {
	defer close(l.gone)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	said, at := "", time.Time{}
	for open := true; open; {
		select {
		case <-tick.C:
		case <-l.over:
			open = false
		}
		text, waited := l.now()
		switch {
		case l.terminal != nil:
			if waited < p.first {
				text = ""
			}
			l.draw(text)
		case text != "" && text != said && waited >= p.first && time.Since(at) >= p.between:
			l.say(text)
			said, at = text, time.Now()
		}
	}
}

// draw shows text in place of what is shown.
func (l *Line) draw(text string) {
	l.screen.Lock()
	defer l.screen.Unlock()
	if text == "" {
		l.hide()
		return
	}
	text = fit(text, columns(l.terminal)-1) // in the last column some terminals begin a line
	if text != l.shown {
		io.WriteString(l.terminal, erase+text)
		l.shown = text
	}
}

// fit makes text one line of at most so many columns.
func fit(text string, columns int) string {
	runes := []rune(printable.Text(strings.Join(strings.Fields(text), " ")))
	if len(runes) > columns {
		runes = append(runes[:max(0, columns-1)], '…')
	}
	return string(runes)
}
