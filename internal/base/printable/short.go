package printable

// maxQuoted is the most bytes of a text that a message repeats.
const maxQuoted = 200

// Short shortens a long text, such as a line of a file, for a message.
func Short(text string) string {
	if len(text) > maxQuoted {
		return text[:maxQuoted] + "…"
	}
	return text
}
