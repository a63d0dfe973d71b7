package tcp

// move reads the data that has come, at most to the end of the posted part. It leaves anything but a data message of
// the right length to serve.
func (s *inStream) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.lent()
	s.much = false
	if c == nil || !s.busy.Load() {
		return
	}
	for limit := s.filled + quantum; s.filled < limit; {
		var head []byte
		body := s.part
		if s.filled < headerSize {
			head = s.header[s.filled:]
		} else {
			body = s.part[s.filled-headerSize:]
		}
		n, err := c.receive(&s.scatter, head, body)
		if n == 0 && err == nil {
			s.much = c.await(headerSize + len(s.part) - s.filled)
			return
		}
		before := s.filled
		s.filled += n
		if err != nil || before < headerSize && s.filled >= headerSize && !s.expected() {
			c.recall()
			return
		}
		if s.filled == headerSize+len(s.part) {
			s.sequence++
			s.complete()
			return
		}
	}
	s.lane.net.goOn()
}

// expected reports that the header announces the part.
func (s *inStream) expected() bool {
	h, err := parseHeader(s.header[:])
	return err == nil && h == header{messageData, s.sequence, uint64(len(s.part))}
}
