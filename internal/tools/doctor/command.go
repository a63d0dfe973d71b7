package doctor

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// commandVariables are the variables of a bundle that hold a command.
var commandVariables = []string{"GOROVOD_SSH"}

// programOf is all that a bundle shows of a command: the program's name. Its arguments may be passwords, in forms that
// only the program knows.
func programOf(command string) string {
	fields := strings.Fields(command)
	switch {
	case len(fields) == 0:
		return command
	case strings.ContainsAny(fields[0], `='"@`): // NAME=value, or no plain name
		return removed
	case len(fields) == 1:
		return path.Base(fields[0])
	}
	return path.Base(fields[0]) + " " + removed
}

// plainWords are words of commands that are no secrets, and may stand elsewhere in a bundle.
var plainWords = []string{
	"apptainer", "docker", "gorovod", "horovodrun", "kubectl", "localhost", "python", "python3", "singularity",
	"sshpass", "timeout",
	"BatchMode", "ConnectTimeout", "IdentityFile", "LogLevel", "ProxyCommand", "ProxyJump", "StrictHostKeyChecking",
	"UserKnownHostsFile", "accept-new",
}

// secretsOf lists the parts of a command that may be secrets: what another text may have of the command, such as an
// error of the program.
func secretsOf(command string) (parts []string) {
	add := func(part string) {
		part = strings.Trim(strings.TrimPrefix(part, "//"), `[](){},;'"`)
		if !slices.Contains(plainWords, part) && !strings.HasPrefix(part, "/") && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	for i, word := range shellWords(command) {
		name, value, named := strings.Cut(word, "=")
		switch {
		case named && !strings.HasPrefix(name, "-"):
			add(word)
			add(value)
		case named:
			add(value)
		case strings.HasPrefix(word, "--"):
			continue
		case strings.HasPrefix(word, "-"): // such as -psecret
			add(strings.TrimPrefix(word, "-")[min(1, len(word)-1):])
			continue
		case i > 0:
			add(word)
		}
		for _, within := range []string{word, value} {
			if within != command && strings.ContainsFunc(within, unicode.IsSpace) { // a command in a command
				for _, part := range secretsOf(within) {
					add(part)
				}
			}
		}
		for _, part := range strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=:@?&", r) }) {
			if i > 0 || named {
				add(part)
			}
		}
	}
	return parts
}

// shellWords splits a command as a shell does, and removes its quotes.
func shellWords(command string) (words []string) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case unicode.IsSpace(r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}
