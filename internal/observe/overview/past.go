package overview

// past is the heat map: for each second and rank how much of it the rank has waited, and how much the others have
// waited for it, in percent.
type past struct {
	size    int
	columns []column
}

type column struct {
	Time    int64   `json:"time"`
	Waiting []byte  `json:"waiting"` // by rank; base64 in JSON
	Late    []byte  `json:"late"`
	Step    float64 `json:"step"` // seconds that a step took then; 0: unknown
}

const (
	mostColumns = 180
	mostCells   = 1 << 18
)

// begin forgets all, for a world of size ranks.
func (p *past) begin(size int) { *p = past{size: size} }

// add adds a column, and drops the oldest one if there are too many.
func (p *past) add(c column) {
	most := max(20, min(mostColumns, mostCells/max(1, p.size)))
	p.columns = append(p.columns, c)
	p.columns = p.columns[max(0, len(p.columns)-most):]
}

// shown returns the past for a new reader.
func (p *past) shown() []column {
	if p.columns == nil {
		return []column{}
	}
	return p.columns
}
