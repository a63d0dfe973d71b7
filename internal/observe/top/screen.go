package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/term"

	"github.com/gorovod/gorovod/internal/observe/overview"
)

// styles are the looks. tcell leaves the colours out if NO_COLOR is set.
var styles = map[look]tcell.Style{
	plain:   tcell.StyleDefault,
	faint:   tcell.StyleDefault.Dim(true),
	title:   tcell.StyleDefault.Bold(true),
	good:    tcell.StyleDefault.Foreground(tcell.ColorGreen),
	bad:     tcell.StyleDefault.Foreground(tcell.ColorYellow).Bold(true),
	worse:   tcell.StyleDefault.Foreground(tcell.ColorRed).Bold(true),
	heading: tcell.StyleDefault.Reverse(true),
}

// pressed translates keys.
var pressed = map[tcell.Key]key{tcell.KeyUp: upKey, tcell.KeyDown: downKey, tcell.KeyPgUp: pageUpKey,
	tcell.KeyPgDn: pageDownKey, tcell.KeyHome: homeKey, tcell.KeyEnd: endKey, tcell.KeyCtrlC: quitKey,
	tcell.KeyEscape: escapeKey, tcell.KeyEnter: enterKey}

// leaveTime is how long the terminal may take to be left as it was. A terminal that is gone, or whose output is
// stopped, can take for ever.
const leaveTime = 500 * time.Millisecond

// outcome is what show returns, and the job that it has shown.
type outcome struct {
	job    *source
	ending *overview.Ending // nil unless the job has ended
	err    error
}

// watch shows the job until the user quits, the terminal is gone or the job has ended. Then it says how the job has
// ended. Of several jobs the user first picks one. A signal ends it even if the terminal takes no more output.
func watch(all []*source, out *os.File) error {
	const instead = "; --once prints plain lines"
	tty, err := tcell.NewDevTty()
	if err != nil {
		return fmt.Errorf("the terminal: %w%s", err, instead)
	}
	screen, err := tcell.NewTerminfoScreenFromTty(plainKeys{tty})
	if err != nil {
		return fmt.Errorf("the terminal %s: %w%s", os.Getenv("TERM"), err, instead)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	before, _ := term.GetState(int(out.Fd()))
	if err := screen.Init(); err != nil {
		return fmt.Errorf("the terminal: %w%s", err, instead)
	}
	shown, stop, left := make(chan outcome, 1), make(chan struct{}), make(chan struct{})
	go func() {
		// One channel for both screens, so that no key is lost between them.
		events, quit := make(chan tcell.Event), make(chan struct{})
		go screen.ChannelEvents(events, quit)
		var o outcome
		if o.job = pick(all, screen, events, stop); o.job != nil {
			o.ending, o.err = show(o.job, screen, events, stop)
		}
		close(quit)
		shown <- o
		screen.Fini()
		close(left)
	}()
	var o outcome
	select {
	case o = <-shown:
	case <-signals:
		close(stop)
	}
	select {
	case <-left:
	case <-time.After(leaveTime):
		if before != nil {
			_ = term.Restore(int(out.Fd()), before)
		}
		return o.err
	}
	if o.err == nil && o.ending != nil {
		_, o.err = io.WriteString(out, ended(o.job, *o.ending))
	}
	return o.err
}

// plainKeys is a terminal from which only ASCII comes. No key of gorovod top needs more, and tcell never gets past a
// byte that is not UTF-8: it loops, and swallows what follows.
type plainKeys struct{ tcell.Tty }

func (k plainKeys) Read(p []byte) (int, error) {
	n, err := k.Tty.Read(p)
	return len(slices.DeleteFunc(p[:n], func(b byte) bool { return b >= utf8.RuneSelf })), err
}

// pick lets the user pick one of the jobs. It returns nil if the user quits, the terminal is gone or stop is closed.
func pick(all []*source, screen tcell.Screen, events <-chan tcell.Event, stop <-chan struct{}) *source {
	if len(all) == 1 {
		return all[0]
	}
	p := &picker{jobs: all}
	for !p.leaving {
		width, height := screen.Size()
		draw(screen, p.view(width, height))
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			switch e := e.(type) {
			case *tcell.EventError: // the terminal is gone
				return nil
			case *tcell.EventKey:
				if p.press(pressed[e.Key()], e.Rune()); p.picked {
					return all[p.at]
				}
			case *tcell.EventResize:
				screen.Sync()
			}
		case <-stop:
			return nil
		}
	}
	return nil
}

// show is watch on a screen. ending is nil if the user has quit, the terminal is gone or stop is closed.
func show(s *source, screen tcell.Screen, events <-chan tcell.Event, stop <-chan struct{}) (
	ending *overview.Ending, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	news, over := make(chan *overview.Snapshot, 1), make(chan struct{})
	var last overview.Ending
	var gone error
	go func() {
		defer close(over)
		last, gone = s.follow(ctx, func(now *overview.Snapshot) {
			select {
			case news <- now:
			case <-ctx.Done():
			}
		})
	}()
	defer func() {
		cancel()
		<-over
	}()
	m := &model{name: s.name}
	clock := time.NewTicker(overview.Every)
	defer clock.Stop()
	for !m.leaving {
		width, height := screen.Size()
		draw(screen, m.view(width, height, time.Now()))
		select {
		case now := <-news:
			m.take(now, time.Now())
		case e, ok := <-events:
			if !ok {
				return nil, nil
			}
			switch e := e.(type) {
			case *tcell.EventError: // the terminal is gone
				return nil, nil
			case *tcell.EventKey:
				m.press(pressed[e.Key()], e.Rune())
			case *tcell.EventResize:
				screen.Sync()
			}
		case <-clock.C:
		case <-stop:
			return nil, nil
		case <-over:
			return &last, gone
		}
	}
	return nil, nil
}

// draw draws these lines.
func draw(screen tcell.Screen, lines []line) {
	screen.Clear()
	for y, l := range lines {
		x := 0
		for _, s := range l {
			x = put(screen, x, y, s)
		}
	}
	screen.Show()
}

// put writes a span, and returns where it ends.
func put(screen tcell.Screen, x, y int, s span) int {
	for rest := s.text; rest != ""; {
		var width int
		rest, width = screen.Put(x, y, rest, styles[s.look])
		if width == 0 {
			break
		}
		x += width
	}
	return x
}
