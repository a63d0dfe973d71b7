package tcp

import "time"

// closeLinger bounds how long an orderly Close waits for the others to acknowledge.
const closeLinger = time.Second

// Close implements transport.Network. If nothing has failed it says goodbye on every connection first. Data may still
// be under way to this rank. If Close closed such a connection, the kernel would reset it, and the reset could overtake
// the goodbye. So Close waits until the other end has closed the connection, at most closeLinger.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.ended {
		n.mu.Unlock()
		<-n.finished
		return nil
	}
	n.ended = true
	orderly := n.cause.Load() == nil
	if orderly {
		close(n.leaving)
	}
	conns := n.connsLocked(func(*conn) bool { return true })
	n.mu.Unlock()

	n.cancel()
	n.acceptor.Close(closeLinger)
	if orderly {
		stop := time.AfterFunc(closeLinger, n.lastCancel)
		defer stop.Stop()
		n.sayGoodbye(conns)
	} else {
		n.farewells.Wait() // bounded by the deadline that abort has set
		for _, c := range conns {
			c.Close()
		}
	}
	n.closeKeeper()
	n.farewells.Wait()
	n.goroutines.Wait()
	for _, c := range conns {
		c.Close()
	}
	n.seal.Wait(closeLinger)
	n.lastCancel()
	n.closeBell()
	for _, l := range n.openLanes() {
		l.board.Quiesce()
	}
	close(n.finished)
	return nil
}

// sayGoodbye tells the ranks that send to this one that it no longer reads. On the other connections the writers say
// goodbye.
func (n *Network) sayGoodbye(conns []*conn) {
	word := goodbye()
	deadline := time.Now().Add(closeLinger)
	for _, c := range conns {
		c.SetDeadline(deadline)
		if c.inbound {
			c.Write(word)
			c.CloseWrite()
		}
	}
}

func goodbye() []byte {
	word := make([]byte, headerSize)
	header{kind: messageGoodbye}.put(word)
	return word
}
