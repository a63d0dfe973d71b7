// Package progress tells people who wait how far something is: on a terminal by one line, which is written over and
// disappears; elsewhere by a line now and then. It does not mention short waits. Only commands use it, never the engine
// and hvd.
package progress

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// When a wait is mentioned. A shorter wait than the first time is not.
const (
	firstDrawn = 2 * time.Second        // on a terminal
	drawEvery  = 200 * time.Millisecond // on a terminal
	firstSaid  = 5 * time.Second        // elsewhere
	sayEvery   = 5 * time.Second        // elsewhere, and only if the text has changed
	lookEvery  = time.Second            // elsewhere
	// lastDraw is how long Close waits for the terminal.
	lastDraw = 100 * time.Millisecond
)

// erase moves the cursor to the beginning of the line, and clears the line.
const erase = "\r\x1b[K"

// Line shows the progress of one wait after another. Its methods may be called on any goroutine, and on a nil Line,
// which shows nothing. They do not wait for the terminal.
type Line struct {
	terminal *os.File          // where the line is drawn; nil: say is used
	say      func(text string) // used if the line is not drawn
	over     chan struct{}
	gone     chan struct{} // closed when the goroutine has ended
	ended    sync.Once

	mu   sync.Mutex
	wait int64     // how many waits there were
	news News      // of the present wait; nil: there is none
	from time.Time // when the present wait began

	// screen is held while the terminal is written.
	screen sync.Mutex
	shown  string // the text of the line on the terminal. screen
}

// News says how far something is; waiting is false once it is over. An empty text is not shown.
type News func() (text string, waiting bool)

// New makes a Line on w, if w is a terminal; otherwise say gets the lines, each without its newline. Close the Line.
func New(w io.Writer, say func(text string)) *Line {
	return open(w, say, pace{every: drawEvery, first: firstDrawn},
		pace{every: lookEvery, first: firstSaid, between: sayEvery})
}

// open is New with the paces for drawing and for saying.
func open(w io.Writer, say func(text string), drawn, said pace) *Line {
	l := &Line{say: say, over: make(chan struct{}), gone: make(chan struct{})}
	p := said
	if f, ok := w.(*os.File); ok && IsTerminal(f) {
		l.terminal, p = f, drawn
	}
	go l.run(p)
	return l
}

// pace is the timing of a Line.
type pace struct {
	every   time.Duration // between two calls of news
	first   time.Duration // from the beginning of a wait to the first text
	between time.Duration // from one text to the next, at least
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

// size is a terminal's size; nil for a file that is no terminal. It does not use f.Fd, which would make f block.
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

// Wait begins a wait, or changes the news of the present one. The Line calls news regularly, on its own goroutine; news
// must not block.
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

// Done ends the wait. The line disappears before Over's writer writes anything.
func (l *Line) Done() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = nil
}

// Close ends the Line. A drawn line disappears, unless the terminal does not accept it within lastDraw.
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

// Over returns a writer to w that first removes the line. Use it for everything else that goes to the terminal.
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

// hide removes the line. The caller holds screen.
func (l *Line) hide() {
	if l.shown != "" {
		io.WriteString(l.terminal, erase)
		l.shown = ""
	}
}

// now returns the text to show, and how long the wait has lasted.
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

// run is the goroutine that shows the line.
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

// draw replaces the shown text by text.
func (l *Line) draw(text string) {
	l.screen.Lock()
	defer l.screen.Unlock()
	if text == "" {
		l.hide()
		return
	}
	text = fit(text, columns(l.terminal)-1) // after the last column, some terminals begin a line
	if text != l.shown {
		io.WriteString(l.terminal, erase+text)
		l.shown = text
	}
}

// fit makes text one line of at most this many columns.
func fit(text string, columns int) string {
	runes := []rune(printable.Text(strings.Join(strings.Fields(text), " ")))
	if len(runes) > columns {
		runes = append(runes[:max(0, columns-1)], '…')
	}
	return string(runes)
}
