package job

import (
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/output"
)

// Audience is all that shows a job while it runs, such as a page, metrics and traces. It only looks: it must not decide
// anything, and none of its methods blocks, except End and Close.
type Audience interface {
	// Follow shows the ranks that meet at s, a world of size ranks, from now on. It is called before s serves. If cause
	// is not empty, the world is formed anew; words are those of the last world's ranks for their failure, if any.
	Follow(s *rendezvous.Server, size int, cause membership.Cause, words string)
	// SetLines sets the function that returns the last lines of a rank, or of a worker in an elastic job; ok is false
	// if there is none with that number.
	SetLines(of func(number int) (stdout, stderr string, ok bool))
	// Note shows a message of the launcher, and Fail an error that fails the job or a part of it. An error is a
	// message, too, and comes to both.
	Note(text string)
	Fail(text string)
	// Summary says where the time of the job went; empty for nothing.
	Summary() string
	// End shows how the job has ended. It waits, for a bounded time, until whoever is far away knows.
	End(code int, why output.Report, err error)
	// Close shows nothing any more.
	Close()
}

// Opener opens what shows a job. ranks is about how many ranks run on this host.
type Opener func(ranks int) (Audience, error)

// nobody is the audience of a job that nothing shows.
type nobody struct{}

func (nobody) Follow(*rendezvous.Server, int, membership.Cause, string)   {}
func (nobody) SetLines(func(number int) (stdout, stderr string, ok bool)) {}
func (nobody) Note(string)                                                {}
func (nobody) Fail(string)                                                {}
func (nobody) Summary() string                                            { return "" }
func (nobody) End(int, output.Report, error)                              {}
func (nobody) Close()                                                     {}
