package meet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// store is the KeyValues of ranks in one process. What is put can be read after the fence.
type store struct {
	mu        sync.Mutex
	size      int
	put, seen map[string]string
	waiting   int
	passed    chan struct{}
	done      int
}

func newStore(size int) *store {
	return &store{size: size, put: map[string]string{}, passed: make(chan struct{})}
}

func (s *store) Put(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put[key] = string(value)
	return nil
}

func (s *store) Fence(ctx context.Context) error {
	s.mu.Lock()
	if s.waiting++; s.waiting == s.size {
		s.seen = s.put
		close(s.passed)
	}
	s.mu.Unlock()
	select {
	case <-s.passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *store) Get(_ context.Context, rank int, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.seen[key]; ok && rank == 0 {
		return []byte(v), nil
	}
	return nil, errors.New("NOT-FOUND")
}

func (s *store) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
}

func TestPMIx(t *testing.T) {
	space := newStore(3)
	want := Offer{Addrs: []string{"192.0.2.1:4711"}, Key: []byte("secret\x00\xff")}
	var ranks sync.WaitGroup
	for r := range 3 {
		ranks.Go(func() {
			b := &pmix{space}
			if r == 0 {
				if _, err := b.Publish(bounded(t), want); err != nil {
					t.Error(err)
				}
				return
			}
			got, err := b.Read(bounded(t), nil)
			if err != nil || !got.equal(want) {
				t.Errorf("rank %d: %v, %v", r, got, err)
			}
			if _, err := b.Read(bounded(t), &got); err == nil || !strings.Contains(err.Error(), "192.0.2.1:4711") {
				t.Errorf("a second reading: %v", err)
			}
		})
	}
	ranks.Wait()
	if space.done < 3 {
		t.Errorf("%d of 3 ranks have said that they need it no more", space.done)
	}
}

func TestPMIxThatGoesWrong(t *testing.T) {
	space := newStore(2)
	if _, err := (&pmix{space}).Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rank 0 has not come: %v", err)
	}
	if space.done != 1 {
		t.Error("a rank that has given up has not said so")
	}
	if _, err := (&pmix{newStore(1)}).Read(bounded(t), nil); err == nil || !strings.Contains(err.Error(), "NOT-FOUND") {
		t.Errorf("rank 0 has put nothing: %v", err)
	}
	space = newStore(1)
	space.Put(t.Context(), pmixKey, []byte(`{"key": "s3cret"`))
	if _, err := (&pmix{space}).Read(bounded(t), nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("half an offer: %v", err)
	}
}
