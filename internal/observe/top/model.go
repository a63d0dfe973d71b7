package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/observe/overview"
)

// model has the contents of the screen, and how it shows them. It does no I/O, so that tests need no terminal.
type model struct {
	name    string // of the job
	now     *overview.Snapshot
	came    time.Time // when now came
	key     int       // index into keys
	upward  bool      // the smallest first
	offset  int       // ranks above the first one that is shown
	fits    int       // ranks that fit on the screen, as the last view has found
	help    bool
	leaving bool
}

// keys are the values by which the ranks can be sorted.
var keys = []struct {
	letter rune
	name   string
	of     func(*overview.Rank) float64 // nil: the rank's number
	upward bool                         // at first
}{
	{'l', "waited for", func(r *overview.Rank) float64 { return float64(r.Late) }, false},
	{'w', "waits", func(r *overview.Rank) float64 { return float64(r.Waiting) }, false},
	{'n', "rank", nil, true},
	{'c', "cores", func(r *overview.Rank) float64 { return r.Cores }, false},
	{'o', "no core", func(r *overview.Rank) float64 { return r.Starved }, false},
	{'m', "memory", func(r *overview.Rank) float64 { return float64(r.Memory) }, false},
	{'f', "in flight", func(r *overview.Rank) float64 { return float64(r.Pending) }, false},
}

// key is what a user can press.
type key int

const (
	otherKey key = iota
	upKey
	downKey
	pageUpKey
	pageDownKey
	homeKey
	endKey
	quitKey // Ctrl-C
	escapeKey
	enterKey
)

// take takes a Snapshot.
func (m *model) take(now *overview.Snapshot, at time.Time) { m.now, m.came = now, at }

// press obeys a key, or the letter if it is otherKey.
func (m *model) press(k key, letter rune) {
	if m.help && k != quitKey && letter != 'q' { // any key leads back
		m.help = false
		return
	}
	switch k {
	case upKey:
		m.offset--
	case downKey:
		m.offset++
	case pageUpKey:
		m.offset -= max(1, m.fits)
	case pageDownKey:
		m.offset += max(1, m.fits)
	case homeKey:
		m.offset = 0
	case endKey:
		m.offset = m.size()
	case quitKey:
		m.leaving = true
	case otherKey:
		m.obey(letter)
	}
	m.offset = max(0, min(m.offset, m.size()-m.fits))
}

func (m *model) obey(letter rune) {
	switch letter {
	case 'q':
		m.leaving = true
	case 'k':
		m.press(upKey, 0)
	case 'j':
		m.press(downKey, 0)
	case ' ':
		m.press(pageDownKey, 0)
	case 's':
		m.sortBy((m.key + 1) % len(keys))
	case 'S':
		m.sortBy((m.key + len(keys) - 1) % len(keys))
	case 'r':
		m.upward = !m.upward
	case 'h', '?':
		m.help = true
	default:
		for i, k := range keys {
			if k.letter == letter {
				m.sortBy(i)
			}
		}
	}
}

func (m *model) sortBy(key int) { m.key, m.upward, m.offset = key, keys[key].upward, 0 }

// size is the number of ranks.
func (m *model) size() int {
	if m.now == nil {
		return 0
	}
	return len(m.now.Ranks)
}

// sorted are the numbers of the ranks in the order of the screen.
func (m *model) sorted() []int {
	order := make([]int, m.size())
	for i := range order {
		order[i] = i
	}
	of := keys[m.key].of
	slices.SortStableFunc(order, func(a, b int) int {
		c := cmp.Compare(a, b)
		if of != nil {
			c = cmp.Compare(of(&m.now.Ranks[a]), of(&m.now.Ranks[b]))
		}
		if !m.upward {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a, b))
	})
	return order
}
