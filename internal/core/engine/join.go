package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// JoinName is the name of every Join.
var JoinName = operation.Join.Describe().Noname()

// join begins a Join. The rank submits no more tensors from now on. It first announces the tensors whose input was not
// ready yet. The caller holds engine.mu.
func (l *lane) join(en *Entry) {
	l.joining = en
	if len(l.unready) == 0 {
		l.settle()
	}
}

// settle asks the coordinator to retire all cards, because no mark of this rank may be under way when it joins. The
// caller holds engine.mu.
func (l *lane) settle() {
	en := l.joining
	r := negotiate.Request{Type: operation.Settle, DType: en.request.DType, Name: fmt.Sprintf("%s.settle.%d",
		JoinName, l.rank), Device: negotiate.CPUDevice, Prescale: 1, Postscale: 1}
	l.postRequest(&r)
}

// settled goes on with this rank's Join once the cards have been retired for it.
func (l *lane) settled(resp *negotiate.Response) {
	if int(resp.Root) != l.engine.opts.Rank {
		return // another rank's
	}
	l.board.TakeStale(l.onStale) // post what has come back, before the Join
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.joining != nil {
		l.post(l.joining)
	}
}
