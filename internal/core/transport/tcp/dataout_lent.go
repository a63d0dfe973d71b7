package tcp

// move lets the driver write more of its part.
func (s *outStream) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.lent(); c != nil && s.busy.Load() {
		s.writeSome(c)
	}
}

// writeFirst writes a message that was posted before there was a connection, because the driver may not poll soon.
func (s *outStream) writeFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.lent(); c != nil && s.busy.Load() {
		s.write(c)
	}
}

// writeSome is the driver's write. s.mu is held, and c is lent.
func (s *outStream) writeSome(c *conn) {
	if s.write(c) {
		s.lane.net.goOn()
	}
}

// write writes as much as it can now, and reports whether there may be room for more. s.mu is held, and c is lent.
func (s *outStream) write(c *conn) (more bool) {
	for limit := s.written + quantum; s.written < limit; {
		head, body := s.left()
		n, err := c.transmit(&s.scatter, head, body)
		if err != nil {
			c.recall() // run meets the same error
			return false
		}
		if n == 0 {
			return false
		}
		if s.written += n; s.written == headerSize+len(s.part) {
			s.complete()
			return false
		}
	}
	return true
}
