package membership

import "fmt"

// Action is something that the caller must do. Carry actions out in order.
type Action interface{ String() string }

// Start starts a worker.
type Start struct {
	Worker int
	Host   string
	Slot   int // the worker's number among the slots of the host
	// Place is the worker's place if all current workers of the job came. LocalRank is the slot, which no other worker
	// of the host has. The real place comes with Form.
	Place Place
}

// End ends a worker's process. Report it by Ended.
type End struct {
	Worker int
	Reason string
}

// Dismiss tells a waiting worker that there is no place for it, so that it ends by itself. If it does not end, end its
// process. Report the end by Ended, if the worker is known.
type Dismiss struct {
	Worker int
	Reason string
}

// Form begins an epoch of workers, all of which wait for a place.
type Form struct {
	Epoch  uint64
	Places []Place // by rank
	// Sync: the members may have different states.
	Sync bool
	// Sets are the process sets of rank 0: lists of ranks, some of which may be beyond this epoch's size.
	Sets [][]int
	// Cause says why the job is formed anew; empty of the first epoch.
	Cause Cause
}

// Cause is why a job is formed anew. The first one of these that holds counts.
type Cause string

// The causes.
const (
	ByFailure Cause = "failure" // a member has died or could not be reached
	ByApart   Cause = "apart"   // the members could not join one another
	ByChange  Cause = "changed" // slots have come, and others were taken away
	ByRemoval Cause = "removed" // slots were taken away
	ByArrival Cause = "added"   // workers have come
	ByError   Cause = "error"   // an operation of the members has failed, and all are alive
)

// Causes are all of them.
func Causes() []Cause { return []Cause{ByFailure, ByApart, ByChange, ByRemoval, ByArrival, ByError} }

// Notify tells the members of the epoch that workers have come, or must go. Members become ready when it suits them.
type Notify struct {
	Workers []int
	Update  HostUpdate
}

// Ping asks a worker whether it lives. Report its answer by Heard.
type Ping struct{ Worker int }

// Stop ends the job and all remaining workers. Reason is empty if the job has finished. No action follows it.
type Stop struct {
	Reason string
	// Unfinished: the reason is that members of the last epoch had operations to do when another one ended. Say which.
	Unfinished bool
}

// Tell is a message for the user.
type Tell struct{ Text string }

// HostUpdate says how the hosts have changed, numbered as in Horovod.
type HostUpdate int

// The kinds of HostUpdate; added and removed together are 3.
const (
	NoUpdate HostUpdate = 0
	Removed  HostUpdate = 1
	Added    HostUpdate = 2
)

func (u HostUpdate) String() string {
	return [...]string{"no update", "removed", "added", "mixed"}[u&3]
}

// Place is a worker's place in an epoch. Cross ranks count the hosts that have a worker with the same local rank.
type Place struct {
	Worker               int
	Host                 string
	Rank, Size           int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
}

func (a Start) String() string {
	return fmt.Sprintf("start worker %d on %s slot %d as rank %d of %d", a.Worker, a.Host, a.Slot, a.Place.Rank,
		a.Place.Size)
}
func (a End) String() string     { return fmt.Sprintf("end worker %d: %s", a.Worker, a.Reason) }
func (a Dismiss) String() string { return fmt.Sprintf("dismiss worker %d: %s", a.Worker, a.Reason) }
func (a Notify) String() string  { return fmt.Sprintf("notify %v: %v", a.Workers, a.Update) }
func (a Ping) String() string    { return fmt.Sprintf("ping worker %d", a.Worker) }
func (a Tell) String() string    { return "tell: " + a.Text }
func (a Stop) String() string {
	if a.Reason == "" {
		return "stop: finished"
	}
	return "stop: " + a.Reason
}

func (a Form) String() string {
	text := fmt.Sprintf("form epoch %d of %d", a.Epoch, len(a.Places))
	if a.Cause != "" {
		text += fmt.Sprintf(" (%s)", a.Cause)
	}
	text += ":"
	host := ""
	for _, p := range a.Places {
		if p.Host != host {
			host = p.Host
			text += " " + host
		}
		text += fmt.Sprintf(" %d", p.Worker)
	}
	if !a.Sync {
		text += ", state is the same"
	}
	if len(a.Sets) > 0 {
		text += fmt.Sprintf(", sets %v", a.Sets)
	}
	return text
}
