package tcp

import "slices"

// run connects and writes the queue, until the network or the lane ends.
func (o *controlOut) run() {
	n := o.lane.net
	c := o.lane.dial(o.lane.lastCtx, o.to, control) // lastCtx: the last frame may say that the log is closed
	if c == nil {
		if n.isAborted() {
			o.lane.tellAbort(o.to)
		}
		return
	}
	o.writer = newWriter(c)
	for {
		o.open()
		select {
		case <-o.news:
			if _, err := c.Write(o.take()); err != nil {
				if n.failed(c, brokenError{error: err}); n.ending() {
					c.Close()
				}
				return
			}
		case <-o.lane.closed:
			rest, sequence := o.last()
			n.leave(c, rest, sequence)
			return
		case <-n.aborted:
			rest, sequence := o.last()
			c.Write(rest)
			n.farewell(c, sequence)
			return
		case <-n.leaving:
			c.Write(o.take()) // the log's last word may be in the queue
			_, sequence := o.last()
			n.farewell(c, sequence)
			c.Close()
			return
		}
	}
}

// open gives the turn to any goroutine that has frames, if the queue is empty.
func (o *controlOut) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 && o.writer != nil {
		o.turn = anyones
	}
}

// take returns the frames that run writes now. Nobody else writes until open is called.
func (o *controlOut) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopFlushes()
	o.begun = 0
	return o.swap()
}

// stopFlushes gives the turn to run, until open is called. mu is held.
func (o *controlOut) stopFlushes() {
	for o.turn == flushing { // for one system call that does not block
		o.flushed.Wait()
	}
	o.turn = runs
}

// last ends the writing of frames. It returns the rest of a partly written frame, and the sequence number of the
// message after that frame. Nobody writes the frames that are still queued.
func (o *controlOut) last() (rest []byte, sequence uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopFlushes()
	unwritten := uint32(0)
	for q := o.queue[o.begun:]; len(q) > 0; unwritten++ {
		q = q[headerSize+length(q):]
	}
	return slices.Clone(o.queue[:o.begun]), o.sequence - unwritten
}
