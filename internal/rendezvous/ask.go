package rendezvous

import (
	"context"
	"fmt"
	"slices"
)

// inquiries is the part of a Session that asks and answers.
type inquiries struct {
	questions chan struct{} // capacity 1: the server waits for an answer

	// Guarded by Session.mu.
	onAsk  func() []byte
	asks   uint64     // how many Asks there have been; numbers them from 1
	asking uint64     // the answers that come are to this one, and to those before
	open   []*inquiry // Asks that have not returned, in order of their numbers
}

// inquiry is an Ask that has not returned.
type inquiry struct {
	use     uint64
	answers [][]byte      // Session.mu
	done    chan struct{} // closed when no more answers will come
}

// OnAsk sets what this rank answers when a rank asks, itself included: what f
// returns, cut to MaxValue bytes. f is called on a goroutine of the session,
// never twice at once, and possibly once more after Close has returned. While
// it blocks this rank does not answer; nothing else waits for it. Before OnAsk
// the answer is empty.
func (s *Session) OnAsk(f func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAsk = f
}

// Ask collects the answers of all ranks of this generation, this one's
// included, by rank. An answer needs nothing of the rank but its session, so it
// also comes from a rank whose other threads are busy or stuck. It may have been
// given up to a second before Ask was called, where another rank had asked.
//
// Ask blocks until all who can have answered, or ctx has ended, which is no
// error: the answer of a rank that gave none is nil, be it stopped, slow, gone or
// not joined yet. An empty answer is not nil. The error, if the launcher has gone
// (ErrLost) or Close was called, comes with the answers so far.
//
// Answers are shared among the callers: they must not be changed.
func (s *Session) Ask(ctx context.Context) ([][]byte, error) {
	q := &inquiry{answers: make([][]byte, s.o.Size), done: make(chan struct{})}
	s.mu.Lock()
	if len(s.open) >= maxPending {
		s.mu.Unlock()
		return nil, fmt.Errorf("rendezvous: ask all ranks: %d others are asking", maxPending)
	}
	s.asks++
	q.use = s.asks
	s.open = append(s.open, q)
	s.mu.Unlock()

	err := s.write(message{Type: typeAsk, Use: q.use})
	if err == nil {
		select {
		case <-q.done:
		case <-ctx.Done():
		case <-s.ended:
			select {
			case <-q.done: // before that
			default:
				err = s.cause()
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(o *inquiry) bool { return o == q })
	if err != nil {
		err = fmt.Errorf("rendezvous: ask all ranks: %w", err)
	}
	return q.answers, err
}

// hear takes the frames that belong to questions; false for all others. The
// caller holds s.mu.
func (s *Session) hear(m message) bool {
	switch m.Type {
	case typeQuestion:
		select {
		case s.questions <- struct{}{}:
		default: // the answer to come serves this one too
		}
	case typeAsking:
		s.asking = m.Use
	case typeAnswer:
		if m.First < 0 || m.First >= s.o.Size {
			break
		}
		if m.Value == nil {
			m.Value = []byte{}
		}
		for _, q := range s.open {
			if q.use <= s.asking && q.answers[m.First] == nil {
				q.answers[m.First] = m.Value
			}
		}
	case typeAnswered:
		s.open = slices.DeleteFunc(s.open, func(q *inquiry) bool {
			if q.use > m.Use {
				return false
			}
			close(q.done)
			return true
		})
	default:
		return false
	}
	return true
}

// reply is the goroutine that answers, so that an answer that is slow to come
// does not hold up the news.
func (s *Session) reply() {
	for {
		select {
		case <-s.questions:
		case <-s.ended:
			return
		}
		s.mu.Lock()
		f := s.onAsk
		s.mu.Unlock()
		var value []byte
		if f != nil {
			value = f()
		}
		// Where it fails the session has ended.
		s.write(message{Type: typeAnswer, Value: value[:min(len(value), MaxValue)]})
	}
}
