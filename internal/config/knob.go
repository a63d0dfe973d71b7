package config

import "fmt"

// Knob is one variable.
type Knob struct {
	Name  string
	Class Class
	// Doc is what an implemented knob means, and for the others why they are
	// what their class says.
	Doc string
	// By is who reads it; empty for the engine.
	By string
	// Agreed knobs must be the same on all ranks: rank 0's value counts.
	Agreed bool
	// Secret values are never shown.
	Secret bool

	section section
	setting
	// check says what is wrong with the value of a variable that By reads; nil where any value will do.
	check func(v string) error
}

// Class says what becomes of a variable that is set.
type Class int

const (
	Implemented Class = iota
	Meaningless       // accepted without effect, because there is nothing here that it could change
	Refused           // setting it to what asks for something is an error
)

func (c Class) String() string {
	switch c {
	case Implemented:
		return "implemented"
	case Meaningless:
		return "meaningless"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// section is where the documentation has an implemented knob.
type section int

const (
	tuning section = iota
	reports
	placement // set by horovodrun for each rank
	elsewhere // read by horovodrun or Python
)

// setting is how a knob is read and shown; both are nil for a knob that the
// engine does not read, and show is nil for one that has no field in Config.
type setting struct {
	// parse sets the field from text that is not empty. A remark as error says
	// that the field is set.
	parse func(c *Config, v string) error
	// show is the inverse: parse(c, show(c)) changes nothing. Empty text
	// stands for a field that is not set, which parse is never given.
	show func(c *Config) string
}

// remark is a parse's error for a value that is taken, but not as its author
// may have meant it.
type remark string

func (r remark) Error() string { return string(r) }

// isSet is what is shown of a secret.
const isSet = "set"

// Default is the value in force while the variable is not set, empty for none.
func (k *Knob) Default() string {
	if k.show == nil {
		return ""
	}
	return k.show(defaults())
}

// Origin says where a value comes from.
type Origin int

const (
	FromDefault Origin = iota
	FromEnvironment
	FromRankZero // adopted, since it differed here
)

func (o Origin) String() string {
	switch o {
	case FromDefault:
		return "default"
	case FromEnvironment:
		return "environment"
	case FromRankZero:
		return "rank 0"
	}
	return fmt.Sprintf("Origin(%d)", int(o))
}

// Setting is what a Config says of one Knob.
type Setting struct {
	*Knob
	// Value is what is in force, or was set where nothing can be; empty for
	// nothing, "set" for a secret.
	Value  string
	Origin Origin
	// Err says why the variable cannot be used. It is part of Config.Err.
	Err error
}

// Settings are all knobs, in the order of the table.
func (c *Config) Settings() []Setting {
	all := make([]Setting, len(Knobs))
	for i := range Knobs {
		k := &Knobs[i]
		s := Setting{Knob: k}
		r := c.readings[k.Name]
		if r != nil {
			s.Value, s.Origin, s.Err = r.text, FromEnvironment, r.err
			if r.adopted {
				s.Origin = FromRankZero
			}
		}
		if k.show != nil && s.Err == nil && !k.Secret {
			s.Value = printable(k.show(c))
		}
		all[i] = s
	}
	return all
}
