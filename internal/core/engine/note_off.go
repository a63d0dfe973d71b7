//go:build !drivingnotes

package engine

// noting says whether this build notes what its drivers do: see note_on.go.
const noting = false

// notes is empty without the build tag drivingnotes, and so are its methods.
type notes struct{}

func (*notes) add(actor, event, action string) {}
func (*notes) facts(facts ...fact) string      { return "" }
func (*notes) save(*Options)                   {}
