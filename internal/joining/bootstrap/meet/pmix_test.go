package meet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// store is the KeyValues of ranks in one process. Values that are put can be read after the fence.
type store struct {
	mu        sync.Mutex
	size      int
	put, seen map[string]string
	waiting   int
	passed    chan struct{}
	done      int
	signs     [][]byte // the results of a roll call
	hosts     []string
	deaf      bool // does not answer a roll call
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

func (s *store) CallRoll(key string) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != pmixSign || s.deaf {
		return nil, errors.New("TIMEOUT")
	}
	return s.signs, nil
}

func (s *store) Hosts() []string { return slices.Clone(s.hosts) }

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
			b := &pmix{space, "a"}
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
	if _, err := (&pmix{space, "a"}).Read(short(t), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rank 0 has not come: %v", err)
	}
	if space.done != 1 {
		t.Error("a rank that has given up has not said so")
	}
	if _, err := (&pmix{newStore(1), "a"}).Read(bounded(t), nil); err == nil || !strings.Contains(err.Error(),
		"NOT-FOUND") {
		t.Errorf("rank 0 has put nothing: %v", err)
	}
	space = newStore(1)
	space.Put(t.Context(), pmixKey, []byte(`{"key": "s3cret"`))
	if _, err := (&pmix{space, "a"}).Read(bounded(t), nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("half an offer: %v", err)
	}
}

// When the time is over, the error names the ranks that have not come, and their hosts.
func TestPMIxNamesTheMissing(t *testing.T) {
	a, b := []byte("a"), []byte("b")
	many := slices.Repeat([]string{"10.0.0.2"}, 12)
	for name, c := range map[string]struct {
		hosts []string
		signs [][]byte
		deaf  bool
		want  string
	}{
		"one": {[]string{"a", "a", "10.0.0.2", "10.0.0.2"}, [][]byte{a, a, b, nil}, false,
			" for rank 3 of 4 (not heard of, started on host b); ranks 0, 1, 2 are there (do all call hvd.init()"},
		"a host": {[]string{"a", "a", "10.0.0.2", "10.0.0.2"}, [][]byte{a, a, nil, nil}, false,
			" for rank 2 of 4 (not heard of, started on host 10.0.0.2), rank 3 of 4 (not heard of, started on host " +
				"10.0.0.2); ranks 0, 1 are there"},
		"rank 0": {[]string{"x", "x"}, [][]byte{nil, a}, false,
			" for rank 0 of 2 (not heard of, started on host a); rank 1 is there"},
		"names of ranks": {[]string{"x", "x", "x"}, [][]byte{nil, a, b}, false,
			" for rank 0 of 3 (not heard of, started on host x); ranks 1, 2 are there"},
		"unknown hosts": {[]string{"", "", ""}, [][]byte{nil, a, a}, false,
			" for rank 0 of 3 (not heard of); ranks 1, 2 are there: 1, 2 on host a"},
		"many": {append([]string{"a"}, many...), append([][]byte{a}, make([][]byte, 12)...), false,
			" for 12 of 13 ranks: 1-12 on host 10.0.0.2 (started, but not heard of); rank 0 is there"},
		"no answer": {[]string{"a", "a", ""}, nil, true, " for some of 3 ranks, and PMIx does not tell for " +
			"which: 0, 1 on host a; 2 on a host that is not known"},
		"nobody, suddenly": {[]string{"a", "b"}, [][]byte{a, b}, false,
			" for PMIx, whose fence has not ended although all 2 ranks have come by now"},
	} {
		t.Run(name, func(t *testing.T) {
			for role, meet := range map[string]func(*pmix) error{
				"rank 0": func(p *pmix) error { _, err := p.Publish(short(t), Offer{}); return err },
				"others": func(p *pmix) error { _, err := p.Read(short(t), nil); return err },
			} {
				space := newStore(len(c.hosts))
				space.hosts, space.signs, space.deaf = c.hosts, c.signs, c.deaf
				err := meet(&pmix{space, "a"})
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v\nwant %s", role, err, c.want)
				}
				if space.put[pmixSign] != "a" {
					t.Errorf("%s has left no sign: %q", role, space.put)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&pmix{newStore(2), "a"}).fence(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(),
		"waited") {
		t.Errorf("an interrupted wait: %v", err)
	}
}
