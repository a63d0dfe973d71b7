package engine

import "github.com/gorovod/gorovod/internal/core/negotiate"

// borrowKept returns the residuals (negotiate.Kept) of an allreduce of n bytes, side by side. The residual of a single
// tensor is used where it is. Those of several are copied, and returnKept brings the copies back. The result is nil if
// the parts keep nothing. ok is false after an abort because there is no memory.
func (l *lane) borrowKept(b *negotiate.Batch, n int) (kept []byte, ok bool) {
	x := &l.current
	if !b.Wire.Keeps() {
		return nil, true
	}
	any := false
	for i := range x.parts {
		any = any || l.residual(&x.parts[i]) != nil
	}
	if !any || len(x.parts) == 1 {
		return l.residual(&x.parts[0]), true
	}
	if kept = l.growIn(&x.owed, n); kept == nil {
		return nil, false
	}
	rest := kept
	for i := range x.parts {
		p := &x.parts[i]
		if r := l.residual(p); r != nil {
			copy(rest, r)
		} else {
			clear(rest[:p.bytes])
		}
		rest = rest[p.bytes:]
	}
	x.borrowed = kept
	return kept, true
}

// returnKept copies the residuals back from where borrowKept has put them.
func (l *lane) returnKept() {
	x := &l.current
	rest := x.borrowed
	x.borrowed = nil
	for i := range x.parts {
		p := &x.parts[i]
		copy(l.residual(p), rest)
		rest = rest[p.bytes:]
	}
}

// residual is the memory in which a part keeps its errors. It is made at the first use; nil if the tensor has no card.
func (l *lane) residual(p *part) []byte {
	k := p.resp.Kept
	if k == nil {
		return nil
	}
	if k.Residual == nil && p.bytes > 0 {
		l.engine.mu.Lock() // for KeptBytes
		k.Residual = make([]byte, p.bytes)
		l.engine.mu.Unlock()
	}
	return k.Residual
}

// KeptBytes is the size of all residuals of this rank.
func (e *Engine) KeptBytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, l := range *e.lanes.Load() {
		l.worker.Cards(func(_ uint32, r *negotiate.Response) {
			if r.Kept != nil {
				n += len(r.Kept.Residual)
			}
		})
	}
	return int64(n)
}
