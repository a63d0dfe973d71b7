package overview

// Identity says which job this is, for readers on the same host.
type Identity struct {
	// PID is rank 0's process, if that one has the job shown; 0 if the process that shows the job is its launcher.
	PID int `json:"pid"`
	// Peers are addresses at which the ranks of the present world meet: flight.Dump.Job has them, too. Empty if the
	// launcher starts the ranks itself.
	Peers []string `json:"peers"`
}

// Identify notes the job's identity.
func (j *Job) Identify(i Identity) {
	j.mu.Lock()
	j.identity = i
	j.mu.Unlock()
}

// Identity is what Identify has noted.
func (j *Job) Identity() Identity {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.identity
}
