// Package notices holds the licences of everything that is linked into gorovod's programs. The engine and package hvd
// never import it.
package notices

import _ "embed"

//go:generate go run ./generate -o THIRD_PARTY_NOTICES.txt

// Text is the notices as they come with the wheel: each module's name, version and licences, and their texts.
//
//go:embed THIRD_PARTY_NOTICES.txt
var Text string
