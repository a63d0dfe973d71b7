package flags

import "fmt"

// refused are Horovod's options that this version does not have, each with the reason or the alternative. An option
// that is accepted has its effect, or is a hint on which nothing depends here (Flags.Notes).
var refused = map[string]string{
	"--jsrun": "jsrun is not used to start processes; inside its jobs, programs that jsrun has started find " +
		"one another",
}

// refusal is the message for an option of Horovod that is not supported, "" for others.
func refusal(option string) string {
	why, ok := refused[option]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s is not supported by this version: %s", option, why)
}
