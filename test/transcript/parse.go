package transcript

import (
	"fmt"
	"strings"
)

// parse finds the commands of a file.
func parse(path string, lines []string) (commands []*Command, err error) {
	for n := 0; n < len(lines); {
		line := strings.TrimSpace(lines[n])
		if line == "" || line[0] == '#' {
			n++
			continue
		}
		c := &Command{Pos: fmt.Sprintf("%s:%d", path, n+1)}
		if c.Cmd, c.Args, err = parseLine(line); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Pos, err)
		}
		input := n + 1
		for n++; n < len(lines) && lines[n] != rule; n++ {
		}
		if n == len(lines) {
			return nil, fmt.Errorf("%s: no %s follows %s", c.Pos, rule, c.Cmd)
		}
		c.Input = strings.TrimSpace(strings.Join(lines[input:n], "\n"))
		c.first = n
		if n, err = c.parseWanted(lines, n+1); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Pos, err)
		}
		c.last = n
		commands = append(commands, c)
	}
	return commands, nil
}

// parseWanted reads the expected output of a command, from line n on, and returns the line after it.
func (c *Command) parseWanted(lines []string, n int) (after int, err error) {
	begin := n
	if n < len(lines) && lines[n] == rule {
		for n, begin = n+1, n+1; n+1 < len(lines); n++ {
			if lines[n] == rule && lines[n+1] == rule {
				c.want = strings.Join(lines[begin:n], "\n") + "\n"
				return n + 2, nil
			}
		}
		return 0, fmt.Errorf("no second double %s ends what %s prints", rule, c.Cmd)
	}
	for n < len(lines) && strings.TrimSpace(lines[n]) != "" {
		n++
	}
	if n > begin {
		c.want = strings.Join(lines[begin:n], "\n") + "\n"
	}
	return n, nil
}

// parseLine splits a command line. Values in parentheses are separated by commas, and may have parentheses.
func parseLine(line string) (cmd string, args []Arg, err error) {
	cmd, rest, _ := strings.Cut(line, " ")
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		var a Arg
		end := strings.IndexAny(rest, " =")
		if end < 0 {
			end = len(rest)
		}
		if a.Key, rest = rest[:end], rest[end:]; a.Key == "" {
			return "", nil, fmt.Errorf("an argument has no name before %q", rest)
		}
		if value, ok := strings.CutPrefix(rest, "="); ok {
			if a.Vals, rest, err = parseValues(value); err != nil {
				return "", nil, fmt.Errorf("%s: %w", a.Key, err)
			}
		}
		args = append(args, a)
	}
	return cmd, args, nil
}

// parseValues splits text behind the first value, or list of values.
func parseValues(text string) (vals []string, rest string, err error) {
	if !strings.HasPrefix(text, "(") {
		value, rest, _ := strings.Cut(text, " ")
		return []string{value}, rest, nil
	}
	depth, begin := 0, 1
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		}
		if depth == 0 || depth == 1 && r == ',' {
			vals = append(vals, strings.TrimSpace(text[begin:i]))
			begin = i + 1
		}
		if depth == 0 {
			return vals, text[i+1:], nil
		}
	}
	return nil, "", fmt.Errorf("no ) closes %s", text)
}
