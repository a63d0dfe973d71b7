package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/gorovod/gorovod/internal/overview"
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
	tcell.KeyEscape: escapeKey}

// watch shows the job until the user quits or the job has ended. Then it says how the job has ended.
func watch(s *source, out io.Writer) error {
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("the terminal %s: %w; --once prints plain lines", os.Getenv("TERM"), err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := screen.Init(); err != nil {
		return fmt.Errorf("the terminal: %w; --once prints plain lines", err)
	}
	ending, err := show(s, screen, signals)
	screen.Fini()
	if err == nil && ending != nil {
		_, err = io.WriteString(out, ended(s, *ending))
	}
	return err
}

// show is watch on a screen. ending is nil if the user has quit.
func show(s *source, screen tcell.Screen, signals <-chan os.Signal) (ending *overview.Ending, err error) {
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
	events, quit := make(chan tcell.Event), make(chan struct{})
	go screen.ChannelEvents(events, quit)
	defer func() {
		close(quit)
		cancel()
		<-over
	}()
	m := &model{name: s.name}
	clock := time.NewTicker(overview.Every)
	defer clock.Stop()
	for !m.leaving {
		draw(screen, m)
		select {
		case now := <-news:
			m.take(now, time.Now())
		case e, ok := <-events:
			if !ok { // the terminal is gone
				return nil, nil
			}
			switch e := e.(type) {
			case *tcell.EventKey:
				m.press(pressed[e.Key()], e.Rune())
			case *tcell.EventResize:
				screen.Sync()
			}
		case <-clock.C:
		case <-signals:
			return nil, nil
		case <-over:
			return &last, gone
		}
	}
	return nil, nil
}

// draw draws m.
func draw(screen tcell.Screen, m *model) {
	screen.Clear()
	width, height := screen.Size()
	for y, l := range m.view(width, height, time.Now()) {
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
