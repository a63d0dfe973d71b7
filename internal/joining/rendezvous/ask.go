package rendezvous

import (
	"context"
	"fmt"
	"slices"
)

// inquiries is the part of a Session for questions and answers.
type inquiries struct {
	questions chan struct{} // capacity 1: the server waits for an answer

	// Guarded by Session.mu.
	onAsk  func() []byte
	asks   uint64     // how many Asks there were; it numbers them from 1
	asking uint64     // arriving answers are to this Ask, and to those before it
	open   []*inquiry // Asks that have not returned, by number
}

// inquiry is an Ask that has not returned.
type inquiry struct {
	use     uint64
	answers [][]byte      // Session.mu
	done    chan struct{} // closed when no more answers will come
}

// OnAsk sets the function that answers when any rank asks, this one included. The session cuts the answer to MaxValue
// bytes. f runs on a goroutine of the session, one call at a time, and possibly once more after Close has returned.
// While f blocks, this rank does not answer, but nothing else waits. Before OnAsk the answer is empty.
func (s *Session) OnAsk(f func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAsk = f
}

// Ask returns the answers of all ranks of this generation, this one included, by rank. A rank's session answers by
// itself, also while the rank's other threads are busy or stuck. If another rank has just asked, an answer may be up
// to a second old.
//
// Ask blocks until all ranks that can answer have answered, or ctx ends. The end of ctx is no error: the answer is nil
// for a rank that gave none because it is stopped, slow, gone or has not joined yet. An empty answer is not nil. If
// the launcher has gone (ErrLost) or Close was called, the error comes with the answers so far.
//
// Callers share the answers and must not change them.
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
			case <-q.done: // the answers were complete before the end
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

// hear handles the frames of questions; false for other frames. The caller holds s.mu.
func (s *Session) hear(m message) bool {
	switch m.Type {
	case typeQuestion:
		select {
		case s.questions <- struct{}{}:
		default: // the answer that is being made serves this question, too
		}
	case typeAsking:
		s.asking = m.Use
	case typeAnswer:
		if m.Value == nil {
			m.Value = []byte{}
		}
		for spans := m.Spans; len(spans) > 1; spans = spans[2:] {
			for r := max(0, spans[0]); r <= min(spans[1], s.o.Size-1); r++ {
				s.noteAnswer(r, m.Value)
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

// noteAnswer notes a rank's answer to the open Asks that it is for. The caller holds s.mu.
func (s *Session) noteAnswer(rank int, answer []byte) {
	for _, q := range s.open {
		if q.use <= s.asking && q.answers[rank] == nil {
			q.answers[rank] = answer
		}
	}
}

// reply is the goroutine that answers, so that a slow answer does not delay the news.
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
		// If this fails, the session has ended.
		s.write(message{Type: typeAnswer, Value: value[:min(len(value), MaxValue)]})
	}
}
