package negotiate

// recent remembers the last Response of names without a card, so that only a repeated name gets one. It is a queue:
// names that are used once, such as "allreduce.noname.17", leave it in the order in which they came.
type recent struct {
	limit int
	ring  []*Response // at most limit
	next  int         // the oldest, once the ring is full
	at    map[string]int
}

func newRecent(limit int) *recent {
	return &recent{limit: limit, at: make(map[string]int)}
}

// has reports whether the last Response of the same name was equal.
func (r *recent) has(resp *Response) bool {
	i, ok := r.at[resp.Name]
	return ok && r.ring[i].repeats(resp)
}

// put remembers resp, which must not be changed any more. A name that is
// there already keeps its place in the queue.
func (r *recent) put(resp *Response) {
	if i, ok := r.at[resp.Name]; ok {
		r.ring[i] = resp
		return
	}
	if len(r.ring) < r.limit {
		r.at[resp.Name] = len(r.ring)
		r.ring = append(r.ring, resp)
		return
	}
	delete(r.at, r.ring[r.next].Name)
	r.ring[r.next] = resp
	r.at[resp.Name] = r.next
	r.next = (r.next + 1) % r.limit
}
